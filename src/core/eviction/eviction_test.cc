// Every eviction policy on a small generated routing, with exact miss counts.
//
// The counts are a golden: they change only when a policy changes. To regenerate, run this test and
// paste what it prints. FIFO is the yardstick; the default must beat it and LRU here.
#include "core/eviction/eviction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
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
        {"two-rate", {9946, 7696, 3995, 1006}},    {"reuse", {9723, 7516, 3769, 1008}},
        {"lfu", {9980, 7804, 4310, 1520}},         {"lfru", {10336, 8366, 4229, 1079}},
        {"lru-layer", {11416, 10058, 4681, 1375}}, {"lru", {10892, 10892, 4794, 1269}},
        {"s3-fifo", {10061, 8224, 4583, 1112}},    {"sieve", {10200, 7992, 4519, 1155}},
        {"fifo", {10892, 10892, 5707, 2059}},
    };
    std::map<std::string, std::vector<uint64_t>> counted;
    for (const EvictionRow& row : eviction_policies()) {
        for (uint32_t slots : {8u, 16u, 32u, 48u})
            counted[std::string(row.name)].push_back(misses(row, slots));
        std::string line;
        for (uint64_t n : counted[std::string(row.name)])
            line += (line.empty() ? "" : ", ") + std::to_string(n);
        printf("        {\"%s\", {%s}},\n", std::string(row.name).c_str(), line.c_str());
    }
    EXPECT_EQ(counted, golden);
    for (size_t i = 0; i < 4; i++) {
        EXPECT_LT(counted["two-rate"][i], counted["lru"][i]);
        EXPECT_LT(counted["two-rate"][i], counted["fifo"][i]);
    }
}

constexpr uint32_t kManyExperts = 32;

// A layer whose experts are used one by one; each use is over before the next.
class OneLayer {
public:
    OneLayer(std::unique_ptr<EvictionPolicy> policy, uint32_t slots)
        : policy_(std::move(policy)), cache_(kManyExperts, slots) {
        policy_->on_start(SeqIndex(0));
    }
    // Who had to go for it.
    std::optional<uint32_t> use(uint32_t expert) {
        std::vector<ExpertDemand> used = {{ExpertIndex(expert), 1}};
        policy_->on_reveal({.used = used});
        if (cache_.residency(ExpertId(expert)) != Residency::kAbsent)
            return std::nullopt;
        std::optional<ExpertId> evicted;
        cache_.begin_read(ExpertId(expert), *policy_, evicted);
        cache_.read_arrived(ExpertId(expert));
        policy_->on_loaded(ExpertId(expert));
        return evicted ? std::optional(evicted->value) : std::nullopt;
    }
    ExpertCache& cache() { return cache_; }

private:
    std::unique_ptr<EvictionPolicy> policy_;
    ExpertCache cache_;
};

EvictionShape one_layer(uint32_t slots) {
    return {.layers = 1, .experts_per_layer = kManyExperts, .slots = slots};
}

TEST(Sieve, TheHandSparesWhatWasUsedAndStaysWhereItStopped) {
    OneLayer layer(make_sieve_eviction(one_layer(4)), 4);
    for (uint32_t expert : {0, 1, 2, 3, 0, 2})
        EXPECT_EQ(layer.use(expert), std::nullopt);
    EXPECT_EQ(layer.use(4), 1u);  // 0 was used again and loses its bit
    EXPECT_EQ(layer.use(5), 3u);  // so does 2
    layer.cache().demand(ExpertId(4));
    EXPECT_EQ(layer.use(6), 5u);  // 4 is pinned
    EXPECT_EQ(layer.use(7), 6u);  // the newest, right at the hand
    layer.cache().release(ExpertId(4));
    EXPECT_EQ(layer.use(8), 7u);
    EXPECT_EQ(layer.use(8), std::nullopt);
    EXPECT_EQ(layer.use(9), 0u);  // the hand spares 8 and begins anew
}

TEST(S3Fifo, WhatComesBackSoonIsKept) {
    OneLayer layer(make_s3_fifo_eviction(one_layer(10)), 10);
    for (uint32_t expert = 0; expert < 10; expert++)
        EXPECT_EQ(layer.use(expert), std::nullopt);
    EXPECT_EQ(layer.use(10), 0u);  // all are in the small queue
    EXPECT_EQ(layer.use(0), 1u);   // 0 was a ghost, and enters the main queue
    EXPECT_EQ(layer.use(2), std::nullopt);
    EXPECT_EQ(layer.use(2), std::nullopt);
    EXPECT_EQ(layer.use(11), 3u);  // 2 was used twice more: it moves to the main queue
    for (uint32_t expert : {4, 5, 6, 7, 8, 9, 10})
        EXPECT_EQ(layer.use(expert + 8), expert);
    EXPECT_EQ(layer.use(0), std::nullopt);
    EXPECT_EQ(layer.use(2), std::nullopt);
}

TEST(LruLayer, ALayerOverItsShareGives) {
    EvictionShape shape{.layers = 2, .experts_per_layer = kExperts, .slots = 4};
    auto policy = make_lru_layer_eviction(shape);
    ExpertCache cache(2 * kExperts, 4);
    auto use = [&](uint32_t layer, uint32_t expert) -> std::optional<uint32_t> {
        std::vector<ExpertDemand> used = {{ExpertIndex(expert), 1}};
        policy->on_reveal({.layer = LayerIndex(layer), .used = used});
        ExpertId id(layer * kExperts + expert);
        std::optional<ExpertId> evicted;
        if (cache.residency(id) == Residency::kAbsent) {
            cache.begin_read(id, *policy, evicted);
            cache.read_arrived(id);
            policy->on_loaded(id);
        }
        return evicted ? std::optional(evicted->value) : std::nullopt;
    };
    for (uint32_t expert : {0, 1, 2})
        use(0, expert);
    use(1, 0);
    EXPECT_EQ(use(1, 1), 0u);             // layer 0 has three of its two
    EXPECT_EQ(use(1, 2), kExperts + 0u);  // now both have two: the layer that wants one gives
    EXPECT_EQ(use(0, 1), std::nullopt);
    EXPECT_EQ(use(0, 3), 2u);
    cache.demand(ExpertId(1));
    cache.demand(ExpertId(3));
    EXPECT_EQ(use(0, 4), kExperts + 1u);  // the others of layer 0 are pinned
    cache.release(ExpertId(1));
    EXPECT_EQ(use(1, 3), 1u);  // and layer 1 gets its slot back
}

// Passes everything on, and looks at what is chosen.
class Checked final : public EvictionPolicy {
public:
    explicit Checked(std::unique_ptr<EvictionPolicy> policy) : policy_(std::move(policy)) {}

    void on_start(SeqIndex seq) override { policy_->on_start(seq); }
    void on_end(SeqIndex seq) override { policy_->on_end(seq); }
    void on_reveal(const Reveal& reveal) override { policy_->on_reveal(reveal); }
    void on_loaded(ExpertId expert) override { policy_->on_loaded(expert); }
    void on_evicted(ExpertId expert) override { policy_->on_evicted(expert); }
    ExpertId choose(const EvictionCandidates& candidates) override {
        ExpertId chosen = policy_->choose(candidates);
        EXPECT_TRUE(std::ranges::contains(candidates.experts(), chosen));
        choices++;
        return chosen;
    }

    int choices = 0;

private:
    std::unique_ptr<EvictionPolicy> policy_;
};

// A cache whose demands, protections, reads and requests come and go at random.
class RandomWorld {
public:
    RandomWorld(const EvictionRow& row, uint64_t seed)
        : prng_(seed),
          slots_(static_cast<uint32_t>(prng_.between(2, 20))),
          policy_(row.make({kLayers, kExperts, kUsed, kRequests, slots_})),
          cache_(kLayers * kExperts, slots_) {}

    void step() {
        ExpertId expert(static_cast<uint32_t>(prng_.below(kLayers * kExperts)));
        switch (prng_.below(8)) {
            case 0:
                return start_or_end(static_cast<uint32_t>(prng_.below(kRequests)));
            case 1:
            case 2:
                return reveal(static_cast<uint32_t>(prng_.below(kRequests)));
            case 3:
                return finish_read();
            case 4:
                return cache_.demands(expert) > 0 ? cache_.release(expert) : cache_.demand(expert);
            case 5:
                return cache_.protections(expert) > 0 ? cache_.unprotect(expert)
                                                      : cache_.protect(expert);
            default:
                return read(expert);
        }
    }
    int choices() const { return policy_.choices; }
    void check_invariants() const { cache_.check_invariants(); }

private:
    void start_or_end(uint32_t request) {
        if (running_[request])
            policy_.on_end(SeqIndex(request));
        else
            policy_.on_start(SeqIndex(request));
        running_[request] = !running_[request];
    }
    void reveal(uint32_t request) {
        if (!running_[request])
            return;
        auto tokens = static_cast<uint32_t>(prng_.chance(1, 4) ? prng_.between(2, 300) : 1);
        std::vector<ExpertDemand> used;
        for (uint32_t e = 0; e < kExperts && (tokens > 1 || used.size() < kUsed); e++) {
            if (prng_.chance(1, 3) || e + kUsed >= kExperts)
                used.push_back({ExpertIndex(e), static_cast<uint32_t>(prng_.between(1, tokens))});
        }
        policy_.on_reveal({.seq = SeqIndex(request),
                           .layer = LayerIndex(static_cast<uint32_t>(prng_.below(kLayers))),
                           .used = used,
                           .tokens = tokens,
                           .running = kRequests});
    }
    void read(ExpertId expert) {
        if (cache_.residency(expert) != Residency::kAbsent || !cache_.has_room())
            return;
        std::optional<ExpertId> evicted;
        cache_.begin_read(expert, policy_, evicted);
        reads_.push_back(expert);
    }
    void finish_read() {
        if (reads_.empty())
            return;
        ExpertId expert = reads_.front();
        reads_.erase(reads_.begin());
        if (prng_.chance(1, 8))
            return cache_.read_failed(expert);
        cache_.read_arrived(expert);
        policy_.on_loaded(expert);
    }

    Prng prng_;
    uint32_t slots_;
    Checked policy_;
    ExpertCache cache_;
    std::array<bool, kRequests> running_{};
    std::vector<ExpertId> reads_;
};

TEST(Eviction, OnlyCandidatesAreChosen) {
    for (const EvictionRow& row : eviction_policies()) {
        SCOPED_TRACE(row.name);
        for (uint64_t seed = 1; seed <= 40; seed++) {
            RandomWorld world(row, seed);
            for (int i = 0; i < 2000; i++)
                world.step();
            world.check_invariants();
            EXPECT_GT(world.choices(), 20);
        }
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
