// Every eviction policy on routes of the demo model, with exact miss counts, and Belady's rule,
// which knows the future, as the bound that none may pass.
//
// The counts are a golden: to regenerate them, run this test and paste what it prints. The routes
// are tests/data/demo_routes.rtrace: 12 stories of 84 to 186 tokens, recorded with
//
//   ./dev bevy run -m models/bevy-tiny-moe-Q8_0.gguf --prompts models/demo-prompts.txt -np 1 -n 300
//       -t 1 --seed 1 --record-routes tests/data/demo_routes.rtrace
//
// Another processor may record others; there is no need to, unless the demo model changes.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/route_trace.h"
#include "core/eviction/eviction_test_replay.h"
#include "core/eviction/registry.h"

namespace bevy {
namespace {

const RouteTrace& demo_routes() {
    static const RouteTrace trace =
        read_route_trace(BEVY_SOURCE_DIR "/tests/data/demo_routes.rtrace").value();
    return trace;
}

uint64_t misses(EvictionPolicy& policy, const ReplayOptions& options, uint32_t slots) {
    ReplayCache cache(demo_routes(), options.requests, slots, policy);
    RouteReplay(demo_routes(), options).run(cache);
    EXPECT_EQ(cache.tokens(), demo_routes().tokens());
    return cache.misses();
}

// The model has 192 experts.
const std::vector<uint32_t> kSlots = {48, 96, 144};
const std::vector<uint32_t> kRequests = {1, 4, 8};

// For every number of requests, every number of slots.
using Counts = std::vector<std::vector<uint64_t>>;

template <class Count>
Counts for_all(bool interleaved, const Count& count) {
    Counts counts;
    for (uint32_t requests : kRequests) {
        counts.emplace_back();
        for (uint32_t slots : kSlots)
            counts.back().push_back(
                count(ReplayOptions{.requests = requests, .interleaved = interleaved}, slots));
    }
    return counts;
}

Counts count(const EvictionRow& row, bool interleaved) {
    return for_all(interleaved, [&](const ReplayOptions& options, uint32_t slots) {
        auto policy = row.make({.layers = demo_routes().layers,
                                .experts_per_layer = demo_routes().experts,
                                .experts_used = demo_routes().top_k,
                                .sequences = options.requests,
                                .slots = slots});
        return misses(*policy, options, slots);
    });
}

Counts count_belady(bool interleaved) {
    return for_all(interleaved, [](const ReplayOptions& options, uint32_t slots) {
        BeladyEviction belady(demo_routes(), options);
        return misses(belady, options, slots);
    });
}

std::string text(const Counts& counts) {
    std::string all;
    for (const std::vector<uint64_t>& row : counts) {
        std::string line;
        for (uint64_t n : row)
            line += (line.empty() ? "" : ", ") + std::to_string(n);
        all += (all.empty() ? "{" : ", {") + line + "}";
    }
    return all;
}

void expect_bound(const Counts& counts, const Counts& bound) {
    for (size_t i = 0; i < bound.size(); i++) {
        for (size_t j = 0; j < bound[i].size(); j++)
            EXPECT_GE(counts[i][j], bound[i][j]) << kRequests[i] << " requests, " << kSlots[j];
    }
}

TEST(EvictionRoutes, MissCountsAreThoseOfTheGolden) {
    const std::map<std::string, Counts> golden = {
        {"belady", {{11564, 3458, 689}, {12247, 3482, 699}, {12402, 3383, 666}}},
        {"fifo", {{26676, 11842, 3516}, {29598, 11714, 3483}, {23165, 11144, 3449}}},
        {"lfru", {{18482, 6901, 1419}, {16404, 5924, 1269}, {14992, 5380, 1179}}},
        {"lfu", {{17245, 5894, 1258}, {16556, 5554, 1116}, {15067, 5196, 1089}}},
        {"lru", {{24235, 8828, 1732}, {30149, 8417, 1739}, {23464, 7466, 1716}}},
        {"lru-layer", {{21703, 9015, 2725}, {18783, 7732, 2489}, {16183, 6868, 2123}}},
        {"reuse", {{17105, 6244, 1283}, {15852, 5495, 1208}, {14242, 5092, 1108}}},
        {"s3-fifo", {{19961, 7342, 1455}, {18290, 7056, 1477}, {16249, 6834, 1381}}},
        {"sieve", {{21579, 6781, 1300}, {24212, 7588, 1314}, {23479, 7492, 1285}}},
        {"two-rate", {{17973, 6775, 1261}, {16456, 5716, 1287}, {15001, 5293, 1186}}},
    };
    std::map<std::string, Counts> counted;
    counted["belady"] = count_belady(false);
    for (const EvictionRow& row : eviction_policies())
        counted[std::string(row.name)] = count(row, false);
    for (const auto& [name, counts] : counted) {
        printf("        {\"%s\", {%s}},\n", name.c_str(), text(counts).c_str());
        SCOPED_TRACE(name);
        expect_bound(counts, counted["belady"]);
    }
    EXPECT_EQ(counted, golden);
}

TEST(EvictionRoutes, NoPolicyMissesLessThanBeladyInterleaved) {
    Counts bound = count_belady(true);
    for (const EvictionRow& row : eviction_policies()) {
        SCOPED_TRACE(row.name);
        expect_bound(count(row, true), bound);
    }
}

}  // namespace
}  // namespace bevy
