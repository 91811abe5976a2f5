// An endless supply of requests for simulations, from a trace that was recorded or generated.
//
// Requests are numbered 0, 1, 2 ...; they are those of the trace in an order drawn from a seed,
// again and again. The same options give the same requests, whatever a policy does with them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/route_trace.h"

namespace bevy {

// The experts of one request. Cheap to copy; valid as long as the trace.
struct RequestRoutes {
    const uint8_t* first = nullptr;  // of the first token
    uint32_t tokens = 0;
    uint32_t layers = 0;
    uint32_t top_k = 0;

    // In router order. REQUIRES: token < tokens, layer < layers.
    std::span<const uint8_t> route(uint32_t token, uint32_t layer) const {
        return {first + (size_t{token} * layers + layer) * top_k, top_k};
    }
};

struct RouteSourceOptions {
    // So many tokens at the beginning of every request of the trace are left out: recorded prompts
    // often share a template, and the first words of a reply its consequences.
    uint32_t drop_tokens = 0;
    // The first so many requests begin somewhere in the middle, so that those who start together
    // do not end together.
    uint32_t staggered = 0;
    uint64_t seed = 1;  // for the order, and for where staggered ones begin
};

class RouteSource {
public:
    // `trace` outlives the source. kUnsupported: no request is long enough.
    static Result<RouteSource> create(const RouteTrace& trace, const RouteSourceOptions& options);

    RequestRoutes request(uint64_t number) const;
    const RouteTrace& trace() const { return *trace_; }

private:
    explicit RouteSource(const RouteTrace& trace) : trace_(&trace) {}

    const RouteTrace* trace_;
    uint32_t drop_tokens_ = 0;
    std::vector<uint32_t> order_;      // requests of the trace that are long enough
    std::vector<uint32_t> staggered_;  // tokens that the first requests begin later
};

}  // namespace bevy
