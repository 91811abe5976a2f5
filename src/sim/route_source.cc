#include "sim/route_source.h"

#include <string>
#include <utility>

#include "base/prng.h"
#include "sim/sim_model.h"

namespace bevy {

Result<RouteSource> RouteSource::create(const RouteTrace& trace,
                                        const RouteSourceOptions& options) {
    RouteSource source(trace);
    source.drop_tokens_ = options.drop_tokens;
    for (uint32_t i = 0; i < trace.requests.size(); i++) {
        if (trace.requests[i].tokens > options.drop_tokens)
            source.order_.push_back(i);
    }
    if (source.order_.empty())
        return fail(ErrorCode::kUnsupported,
                    "no request of the trace has more than the " +
                        std::to_string(options.drop_tokens) +
                        " tokens that are left out at the beginning of each",
                    "leave out fewer");
    Prng prng(sim_mix(options.seed, 'o'));
    for (size_t i = source.order_.size(); i > 1; i--)
        std::swap(source.order_[i - 1], source.order_[prng.below(i)]);
    for (uint32_t i = 0; i < options.staggered; i++)
        source.staggered_.push_back(static_cast<uint32_t>(prng.below(source.request(i).tokens)));
    return source;
}

RequestRoutes RouteSource::request(uint64_t number) const {
    const RouteTrace::Request& request = trace_->requests[order_[number % order_.size()]];
    const uint32_t skipped = drop_tokens_ + (number < staggered_.size() ? staggered_[number] : 0);
    return {.first = request.bytes.data() + size_t{skipped} * trace_->layers * trace_->top_k,
            .tokens = request.tokens - skipped,
            .layers = trace_->layers,
            .top_k = trace_->top_k};
}

}  // namespace bevy
