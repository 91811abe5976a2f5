// Every eviction policy on a small generated routing, with exact miss counts.
//
// The counts are a golden: they change only when a policy changes. To regenerate, run this test and
// paste what it prints. FIFO is the yardstick; the default must beat it and LRU here.
#include "core/eviction/eviction.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/prng.h"
#include "core/eviction/registry.h"
#include "core/eviction/scored.h"
#include "core/expert_cache.h"

namespace bevy {
namespace {

constexpr uint32_t kLayers = 4;
constexpr uint32_t kExperts = 16;
constexpr uint32_t kUsed = 2;
constexpr uint32_t kRequests = 4;

// Each request has a working set of four experts per layer that it mostly stays in, and drifts.
struct Routing {
    explicit Routing(uint64_t seed) : prng(seed) {
        for (auto& set : working_sets)
            set = static_cast<uint32_t>(prng.below(kExperts));
    }
    std::vector<ExpertDemand> visit(uint32_t request, uint32_t layer) {
        uint32_t& set = working_sets[request * kLayers + layer];
        if (prng.chance(1, 64))
            set = static_cast<uint32_t>(prng.below(kExperts));
        std::vector<ExpertDemand> route;
        while (route.size() < kUsed) {
            auto e = static_cast<uint32_t>(prng.chance(7, 8) ? (set + prng.below(4)) % kExperts
                                                             : prng.below(kExperts));
            bool repeated = false;
            for (const ExpertDemand& d : route)
                repeated |= d.expert.value == e;
            if (!repeated)
                route.push_back({ExpertIndex(e), 1});
        }
        return route;
    }
    Prng prng;
    std::array<uint32_t, kRequests * kLayers> working_sets{};
};

uint64_t misses(const EvictionRow& row, uint32_t slots) {
    auto policy = row.make({kLayers, kExperts, kUsed, kRequests, slots});
    for (uint32_t request = 0; request < kRequests; request++)
        policy->on_start(SeqIndex(request));
    ExpertCache cache(kLayers * kExperts, slots);
    Routing routing(7);
    uint64_t misses = 0;
    for (int token = 0; token < 400; token++) {
        for (uint32_t layer = 0; layer < kLayers; layer++) {
            for (uint32_t request = 0; request < kRequests; request++) {
                auto route = routing.visit(request, layer);
                policy->on_reveal({.seq = SeqIndex(request),
                                   .layer = LayerIndex(layer),
                                   .used = route,
                                   .running = kRequests});
                for (const ExpertDemand& d : route) {
                    ExpertId id(layer * kExperts + d.expert.value);
                    cache.demand(id);
                    if (cache.residency(id) == Residency::kAbsent) {
                        std::optional<ExpertId> evicted;
                        cache.begin_read(id, *policy, evicted);
                        cache.read_arrived(id);
                        policy->on_loaded(id);
                        misses++;
                    }
                }
                for (const ExpertDemand& d : route)
                    cache.release(ExpertId(layer * kExperts + d.expert.value));
            }
        }
    }
    return misses;
}

TEST(Eviction, MissCountsAreThoseOfTheGolden) {
    const std::map<std::string, std::vector<uint64_t>> golden = {
        {"two-rate", {9946, 7696, 3995, 1006}},
        {"reuse", {9723, 7516, 3769, 1008}},
        {"lru", {10892, 10892, 4794, 1269}},
        {"fifo", {10892, 10892, 5707, 2059}},
    };
    std::map<std::string, std::vector<uint64_t>> counted;
    for (const EvictionRow& row : eviction_policies()) {
        for (uint32_t slots : {8u, 16u, 32u, 48u})
            counted[std::string(row.name)].push_back(misses(row, slots));
        std::string line = "{\"" + std::string(row.name) + "\", {";
        for (uint64_t n : counted[std::string(row.name)])
            line += std::to_string(n) + ", ";
        printf("%s}},\n", line.c_str());
    }
    EXPECT_EQ(counted, golden);
    for (size_t i = 0; i < 4; i++) {
        EXPECT_LT(counted["two-rate"][i], counted["lru"][i]);
        EXPECT_LT(counted["two-rate"][i], counted["fifo"][i]);
    }
}

// The integers against the definition in floating point.
TEST(TwoRate, FollowsItsDefinition) {
    auto policy = make_two_rate_eviction({.layers = 1, .experts_per_layer = 8});
    std::vector<double> fast(8);
    std::vector<double> slow(8);
    Prng prng(3);
    for (int visit = 0; visit < 3000; visit++) {
        uint32_t running = visit < 1500 ? 1 : 3;
        std::vector<ExpertDemand> used = {{ExpertIndex(static_cast<uint32_t>(prng.below(4))), 1}};
        policy->on_reveal({.used = used, .running = running});
        for (uint32_t e = 0; e < 8; e++) {
            double hit = e == used[0].expert.value;
            fast[e] += (hit - fast[e]) / (4.0 * running);
            slow[e] += (hit - slow[e]) / (128.0 * running);
        }
    }
    std::span<const uint64_t> scores = static_cast<ScoredEviction&>(*policy).scores();
    for (uint32_t e = 0; e < 8; e++) {
        double score = static_cast<double>(scores[e]) / (1 << 30);
        EXPECT_NEAR(score, fast[e] + slow[e], 1e-5);
    }
}

}  // namespace
}  // namespace bevy
