// Routes that nobody recorded, with the statistics of those that somebody did.
//
// The logit of expert e for a token of request r at layer l is
//     popularity * P(l, e) + request * R(r, l, e) + drift * D(r, l, e, token) + noise,
// where P, R and the noise are independent normal variates, D is a first-order autoregression over
// the tokens (its correlation from one token to the next is `memory`), and the k largest logits are
// the route. So an expert is used again because everybody uses it, because this request does, or
// because the text has just been about its subject. There is no correlation between layers.
//
// Integers only: the same seed gives the same routes with every compiler and on every machine.
#pragma once

#include <cstdint>

#include "base/route_trace.h"

namespace bevy {

// Standard deviations in thousandths of that of the noise.
struct RoutingStatistics {
    uint32_t popularity_per_mille = 0;
    uint32_t request_per_mille = 0;
    uint32_t drift_per_mille = 0;
    uint32_t memory_per_mille = 0;  // 0 .. 1000
};

struct GeneratedRoutesOptions {
    uint32_t layers = 1;
    uint32_t experts = 1;  // at most RouteTrace::kExpertsMax
    uint32_t top_k = 1;    // at most `experts`
    RoutingStatistics statistics;
    uint32_t requests = 64;
    // Lengths are uniform between these. REQUIRES: 1 <= tokens_min <= tokens_max.
    uint32_t tokens_min = 150;
    uint32_t tokens_max = 450;
    uint64_t seed = 1;
};

RouteTrace generate_routes(const GeneratedRoutesOptions& options);

}  // namespace bevy
