#include "sim/generated_routes.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/assert.h"
#include "base/prng.h"
#include "sim/sim_model.h"

namespace bevy {

namespace {

// Nearly normal, with a standard deviation of 65536 / sqrt(3): the sum of four uniform variates.
// Its tails end at 3.5 standard deviations, which is further than routers are told apart.
int32_t normal(Prng& prng) {
    const uint64_t bits = prng.next();
    const uint64_t sum =
        (bits & 0xFFFF) + (bits >> 16 & 0xFFFF) + (bits >> 32 & 0xFFFF) + (bits >> 48);
    return static_cast<int32_t>(sum) - 2 * 0xFFFF;
}

// The largest integer whose square is not above `n`.
uint32_t square_root(uint32_t n) {
    uint32_t root = 0;
    for (uint32_t bit = 1u << 15; bit > 0; bit >>= 1) {
        if (uint64_t{root | bit} * (root | bit) <= n)
            root |= bit;
    }
    return root;
}

// The experts of one request, token after token.
class Generator {
public:
    Generator(const GeneratedRoutesOptions& options, std::span<const int32_t> popularity,
              uint64_t number)
        : options_(options),
          prng_(sim_mix(options.seed, number, 'r')),
          lasting_(popularity.size()),
          drift_(popularity.size()),
          order_(options.experts),
          renewal_(square_root(1'000'000 - options.statistics.memory_per_mille *
                                               options.statistics.memory_per_mille)) {
        const RoutingStatistics& s = options.statistics;
        for (size_t i = 0; i < lasting_.size(); i++) {
            lasting_[i] = int64_t{s.popularity_per_mille} * popularity[i] +
                          int64_t{s.request_per_mille} * normal(prng_);
            drift_[i] = normal(prng_);
        }
    }

    RouteTrace::Request take() {
        RouteTrace::Request request;
        request.tokens =
            static_cast<uint32_t>(prng_.between(options_.tokens_min, options_.tokens_max));
        request.bytes.reserve(size_t{request.tokens} * options_.layers * options_.top_k);
        for (uint32_t token = 0; token < request.tokens; token++) {
            for (uint32_t layer = 0; layer < options_.layers; layer++)
                add_route(layer, request.bytes);
        }
        return request;
    }

private:
    struct Candidate {
        int64_t logit;
        uint32_t expert;

        bool operator<(const Candidate& other) const {
            return logit != other.logit ? logit > other.logit : expert < other.expert;
        }
    };

    void add_route(uint32_t layer, std::vector<uint8_t>& bytes) {
        const RoutingStatistics& s = options_.statistics;
        const size_t first = size_t{layer} * options_.experts;
        for (uint32_t expert = 0; expert < options_.experts; expert++) {
            int32_t& drift = drift_[first + expert];
            drift = static_cast<int32_t>(
                (int64_t{s.memory_per_mille} * drift + int64_t{renewal_} * normal(prng_)) / 1000);
            order_[expert] = {lasting_[first + expert] + int64_t{s.drift_per_mille} * drift +
                                  int64_t{1000} * normal(prng_),
                              expert};
        }
        std::partial_sort(order_.begin(), order_.begin() + options_.top_k, order_.end());
        for (uint32_t slot = 0; slot < options_.top_k; slot++)
            bytes.push_back(static_cast<uint8_t>(order_[slot].expert));
    }

    const GeneratedRoutesOptions& options_;
    Prng prng_;
    std::vector<int64_t> lasting_;  // per (layer, expert): what does not change with the token
    std::vector<int32_t> drift_;
    std::vector<Candidate> order_;  // reused by every route
    const uint32_t renewal_;        // keeps the variance of the drift at one, in thousandths
};

}  // namespace

RouteTrace generate_routes(const GeneratedRoutesOptions& options) {
    BEVY_ASSERT(options.experts <= RouteTrace::kExpertsMax && options.top_k <= options.experts);
    BEVY_ASSERT(options.tokens_min > 0 && options.tokens_min <= options.tokens_max);
    BEVY_ASSERT(options.statistics.memory_per_mille <= 1000);
    RouteTrace trace{.layers = options.layers, .experts = options.experts, .top_k = options.top_k};
    Prng prng(sim_mix(options.seed, 'p'));
    std::vector<int32_t> popularity(size_t{options.layers} * options.experts);
    for (int32_t& value : popularity)
        value = normal(prng);
    for (uint32_t number = 0; number < options.requests; number++)
        trace.requests.push_back(Generator(options, popularity, number).take());
    return trace;
}

}  // namespace bevy
