// Whether routes generated with the statistics of a built-in model look like those of the model.
#include <gtest/gtest.h>

#include <bitset>
#include <set>

#include "base/prng.h"
#include "cli/profiles.h"
#include "sim/generated_routes.h"

namespace bevy {
namespace {

using Experts = std::bitset<RouteTrace::kExpertsMax>;

// Eight of the layers are enough for means.
RouteTrace routes_of(const char* model) {
    const ModelProfile profile = open_model_profile(model).value();
    return generate_routes({.layers = 8,
                            .experts = profile.experts,
                            .top_k = profile.top_k,
                            .statistics = profile.routing});
}

Experts experts(const RouteTrace& trace, uint32_t request, uint32_t token, uint32_t layer) {
    Experts set;
    for (const uint8_t expert : trace.route(request, token, layer))
        set.set(expert);
    return set;
}

// Part of the experts of a token that the request also used `lag` tokens before.
double reuse(const RouteTrace& trace, uint32_t lag) {
    uint64_t used = 0;
    uint64_t again = 0;
    for (uint32_t request = 0; request < trace.requests.size(); request++) {
        for (uint32_t token = lag; token < trace.requests[request].tokens; token++) {
            for (uint32_t layer = 0; layer < trace.layers; layer++) {
                used += trace.top_k;
                again += (experts(trace, request, token, layer) &
                          experts(trace, request, token - lag, layer))
                             .count();
            }
        }
    }
    return static_cast<double>(again) / static_cast<double>(used);
}

// Distinct experts of a layer that so many different requests use at once, on average.
double distinct(const RouteTrace& trace, uint32_t requests) {
    constexpr int kSamples = 4000;
    Prng prng(1);
    uint64_t sum = 0;
    for (int i = 0; i < kSamples; i++) {
        const auto layer = static_cast<uint32_t>(prng.below(trace.layers));
        std::set<uint32_t> chosen;
        while (chosen.size() < requests)
            chosen.insert(static_cast<uint32_t>(prng.below(trace.requests.size())));
        Experts all;
        for (const uint32_t request : chosen)
            all |=
                experts(trace, request,
                        static_cast<uint32_t>(prng.below(trace.requests[request].tokens)), layer);
        sum += all.count();
    }
    return static_cast<double>(sum) / kSamples;
}

TEST(ModelRouting, Gpt20bIsLikeItsPublishedTraces) {
    const RouteTrace trace = routes_of("gpt-oss-20b");
    EXPECT_NEAR(reuse(trace, 1), 0.45, 0.03);
    EXPECT_NEAR(reuse(trace, 2), 0.39, 0.03);
    EXPECT_NEAR(reuse(trace, 64), 0.33, 0.04);
    EXPECT_NEAR(distinct(trace, 1), 4, 0.001);
    EXPECT_NEAR(distinct(trace, 2), 7.2, 0.2);
    EXPECT_NEAR(distinct(trace, 4), 12.1, 0.5);
    EXPECT_NEAR(distinct(trace, 8), 17.9, 0.9);
    EXPECT_NEAR(distinct(trace, 16), 23, 1.2);
}

TEST(ModelRouting, Qwen30bIsLikeItsPublishedTraces) {
    const RouteTrace trace = routes_of("qwen3-30b-a3b");
    EXPECT_NEAR(reuse(trace, 1), 0.40, 0.03);
    EXPECT_NEAR(reuse(trace, 64), 0.27, 0.04);
    EXPECT_NEAR(distinct(trace, 1), 8, 0.001);
    EXPECT_NEAR(distinct(trace, 2), 15, 0.5);
    EXPECT_NEAR(distinct(trace, 4), 27, 1.4);
    EXPECT_NEAR(distinct(trace, 8), 43, 2.2);
    EXPECT_NEAR(distinct(trace, 16), 59, 3);
}

}  // namespace
}  // namespace bevy
