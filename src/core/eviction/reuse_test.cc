// The curves of probability.h and the policy `reuse` against their definitions in floating point.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <vector>

#include "base/prng.h"
#include "core/eviction/probability.h"
#include "core/eviction/registry.h"
#include "core/expert_cache.h"

namespace bevy {
namespace {

TEST(Probability, ComplementBitsAreTheLogarithm) {
    for (uint32_t p = 0; p <= kProbabilityMax; p++) {
        double expected = -std::log2(1 - p / 65536.0);
        ASSERT_NEAR(complement_bits(p) / double{kBit}, expected, 2e-6 + expected * 2e-4) << p;
    }
    EXPECT_EQ(complement_bits(kProbabilityOne), complement_bits(kProbabilityMax));
    EXPECT_GT(complement_bits(1), 0u);
}

TEST(Probability, PowerOfHalfIsThePower) {
    for (uint64_t bits = 0; bits < uint64_t{35} * kBit; bits += 997)
        ASSERT_NEAR(power_of_half(bits) / double{kFineProbabilityOne},
                    std::exp2(-static_cast<double>(bits) / kBit), 2e-6)
            << bits;
    EXPECT_EQ(power_of_half(0), kFineProbabilityOne);
    EXPECT_EQ(power_of_half(kBit), kFineProbabilityOne / 2);
    EXPECT_EQ(power_of_half(~uint64_t{0}), 0u);
}

constexpr uint32_t kLayers = 3;
constexpr uint32_t kExperts = 12;
constexpr uint32_t kUsed = 3;
constexpr uint32_t kRequests = 4;
constexpr double kAverage = double{kUsed} / kExperts;

using Row = std::array<double, kExperts>;

// The rule as its essay has it, with nothing kept that could be computed.
struct Reference {
    struct Request {
        bool runs = false;
        uint32_t next_layer = 0;
        std::array<Row, kLayers> recent{}, uses{}, probability{};
        std::array<double, kLayers> visits{};
        std::array<std::vector<uint32_t>, kLayers> previous{};
    };
    Reference() {
        for (Row& row : prior)
            row.fill(kAverage);
        for (auto& layer : followers) {
            for (Row& row : layer)
                row.fill(kAverage);
        }
    }
    void start(uint32_t seq) {
        requests[seq] = {};
        requests[seq].runs = true;
        requests[seq].recent = requests[seq].probability = prior;
    }
    void end(uint32_t seq) { requests[seq].runs = false; }

    void reveal(uint32_t seq, uint32_t l, const std::vector<ExpertDemand>& used, uint32_t tokens) {
        Request& r = requests[seq];
        r.next_layer = (l + 1) % kLayers;
        Row shares{};
        for (const ExpertDemand& d : used)
            shares[d.expert.value] = double(d.rows) / tokens;
        double visits = std::min(tokens, 64u);
        if (r.visits[l] + visits > 512) {
            r.visits[l] = std::floor(r.visits[l] / 2);
            for (double& uses : r.uses[l])
                uses = std::floor(uses / 2);
        }
        r.visits[l] += visits;
        for (uint32_t before : tokens == 1 ? r.previous[l] : std::vector<uint32_t>{}) {
            for (uint32_t e = 0; e < kExperts; e++)
                followers[l][before][e] += (shares[e] - followers[l][before][e]) / 64;
        }
        r.previous[l].clear();
        for (uint32_t e = 0; e < kExperts; e++) {
            prior[l][e] += (shares[e] - prior[l][e]) / 1024;
            r.recent[l][e] = tokens == 1 ? r.recent[l][e] * 0.75 + shares[e] / 4 : shares[e];
            r.uses[l][e] += std::floor(shares[e] * visits + 1e-9);
            if (tokens == 1 && shares[e] > 0)
                r.previous[l].push_back(e);
        }
        for (uint32_t e = 0; e < kExperts; e++) {
            double mean = (r.uses[l][e] + 8 * prior[l][e]) / (r.visits[l] + 8);
            double follower = tokens == 1 ? 0 : mean;
            for (uint32_t before : r.previous[l])
                follower += followers[l][before][e] / kUsed;
            r.probability[l][e] = (r.recent[l][e] + mean + 2 * follower) / 4;
        }
    }
    double score(ExpertId expert) const {
        uint32_t l = expert.value / kExperts;
        double unused = 1;
        double nearness = 0;
        for (const Request& r : requests) {
            if (!r.runs)
                continue;
            unused *= 1 - std::min(r.probability[l][expert.value % kExperts], 63.0 / 64);
            nearness += std::exp2(-double((l + kLayers - r.next_layer) % kLayers) / kLayers);
        }
        return (1 - unused) * nearness;
    }

    std::array<Request, kRequests> requests{};
    std::array<Row, kLayers> prior{};
    std::array<std::array<Row, kExperts>, kLayers> followers{};
};

// Mostly four neighbours that drift, so that all three signals have something to see.
std::vector<ExpertDemand> random_route(Prng& prng, uint32_t centre, uint32_t tokens) {
    std::vector<ExpertDemand> route;
    for (uint32_t e = 0; e < kExperts; e++)
        route.push_back({ExpertIndex(e), 1});
    auto priority = [&](uint32_t e) {
        return (e + kExperts - centre) % kExperts < 4 ? prng.below(60) : prng.below(100) + 20;
    };
    std::vector<std::pair<uint64_t, uint32_t>> order;
    for (uint32_t e = 0; e < kExperts; e++)
        order.emplace_back(priority(e), e);
    std::ranges::sort(order);
    std::vector<ExpertDemand> chosen;
    uint32_t count = tokens == 1 ? kUsed : static_cast<uint32_t>(prng.between(kUsed, kExperts));
    for (uint32_t i = 0; i < count; i++)
        chosen.push_back({ExpertIndex(order[i].second),
                          tokens == 1 ? 1 : static_cast<uint32_t>(prng.between(1, tokens))});
    return chosen;
}

// The victim is the one with the smallest score of the definition, or as good as that: requests
// come and go, run at their own pace, and some begin with a prompt in chunks.
TEST(Reuse, FollowsItsDefinition) {
    auto policy = make_reuse_eviction({.layers = kLayers,
                                       .experts_per_layer = kExperts,
                                       .experts_used = kUsed,
                                       .sequences = kRequests});
    Reference reference;
    ExpertCache cache(kLayers * kExperts, kLayers * kExperts);
    Prng prng(5);
    std::array<uint32_t, kRequests> chunks{};
    uint64_t choices_that_differ = 0;
    for (int visit = 0; visit < 60'000; visit++) {
        auto seq = static_cast<uint32_t>(prng.below(kRequests));
        Reference::Request& request = reference.requests[seq];
        // Some requests are long enough for their counts to be halved.
        if (request.runs && prng.chance(1, seq == 0 ? 6000 : 300)) {
            policy->on_end(SeqIndex(seq));
            reference.end(seq);
        } else if (!request.runs) {
            policy->on_start(SeqIndex(seq));
            reference.start(seq);
            chunks[seq] = static_cast<uint32_t>(prng.below(3)) * kLayers;
        } else {
            uint32_t layer = request.next_layer;
            uint32_t tokens = 1;
            if (chunks[seq] > 0) {
                chunks[seq]--;
                tokens = static_cast<uint32_t>(prng.between(2, 100));
            }
            auto route = random_route(prng, seq * 3 + static_cast<uint32_t>(visit) / 9000, tokens);
            policy->on_reveal({.seq = SeqIndex(seq),
                               .layer = LayerIndex(layer),
                               .used = route,
                               .tokens = tokens});
            reference.reveal(seq, layer, route, tokens);
        }
        std::vector<ExpertId> candidates;
        for (uint32_t i = 0; i < kLayers * kExperts; i++) {
            if (prng.chance(1, 3))
                candidates.emplace_back(i);
        }
        if (candidates.empty())
            continue;
        ExpertId chosen = policy->choose({candidates, cache, true});
        double least = reference.score(*std::ranges::min_element(
            candidates, {}, [&](ExpertId e) { return reference.score(e); }));
        ASSERT_TRUE(std::ranges::count(candidates, chosen));
        ASSERT_LE(reference.score(chosen), least * 1.01 + 2e-3) << "visit " << visit;
        choices_that_differ += reference.score(chosen) > least;
    }
    EXPECT_LT(choices_that_differ, 100u);
}

}  // namespace
}  // namespace bevy
