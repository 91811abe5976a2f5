// Each read order on states made by hand: whose expert comes first.
#include "core/read_order/read_order.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "core/core_test_driver.h"
#include "core/eviction/registry.h"
#include "core/read_order/registry.h"

namespace bevy {
namespace {

// Requests that wait at layer 0, the most lagging first.
class Waiting {
public:
    Waiting() : state_(config()), eviction_(make_fifo_eviction({.layers = 1})) {}

    // `revealed`: when its router spoke.
    void add(std::initializer_list<uint32_t> chosen, uint64_t revealed) {
        Sequence& s = state_.sequences[count_++];
        s.phase = Phase::kExperts;
        s.reveal_number = revealed;
        for (const ExpertDemand& demand : experts(chosen)) {
            s.demands.push_back({.expert = ExpertId(demand.expert.value)});
            s.missing++;
            state_.cache.demand(s.demands.back().expert);
        }
    }
    void start(uint32_t expert) {
        std::optional<ExpertId> evicted;
        state_.cache.begin_read(ExpertId(expert), *eviction_, evicted);
    }
    void arrive(uint32_t expert) {
        state_.cache.read_arrived(ExpertId(expert));
        for (Sequence& s : state_.sequences) {
            for (const Demand& demand : s.demands)
                s.missing -= demand.expert == ExpertId(expert);
        }
    }
    void compute(uint32_t sequence, uint32_t expert) {
        for (Demand& demand : state_.sequences[sequence].demands)
            demand.done |= demand.expert == ExpertId(expert);
        state_.cache.release(ExpertId(expert));
    }
    std::optional<ExpertId> next(ReadOrder& order) const {
        std::vector<uint32_t> all(count_);
        std::iota(all.begin(), all.end(), 0);
        std::erase_if(all, [&](uint32_t i) { return !state_.sequences[i].waiting(); });
        return order.next(state_, all);
    }
    // The order in which everything that is missing would be read, without anything arriving.
    std::vector<uint32_t> all(std::unique_ptr<ReadOrder> order) {
        std::vector<uint32_t> experts;
        while (auto expert = next(*order)) {
            experts.push_back(expert->value);
            start(expert->value);
        }
        return experts;
    }

private:
    static CoreConfig config() {
        CoreConfig config = small_config();
        config.moe_layers = 1;
        config.experts_per_layer = 16;
        config.slots = 16;
        return config;
    }
    CoreState state_;
    std::unique_ptr<EvictionPolicy> eviction_;
    uint32_t count_ = 0;
};

using Ids = std::vector<uint32_t>;

TEST(ReadOrder, LagServesTheMostLaggingRequestInRouterOrder) {
    Waiting waiting;
    waiting.add({5, 2}, 9);
    waiting.add({1, 2, 0}, 3);
    waiting.add({7}, 1);
    EXPECT_EQ(waiting.all(make_lag_order()), (Ids{5, 2, 1, 0, 7}));
}

TEST(ReadOrder, FifoServesWhoAskedFirstHoweverFarAhead) {
    Waiting waiting;
    waiting.add({5, 2}, 9);
    waiting.add({1, 2, 0}, 3);
    waiting.add({7}, 1);
    EXPECT_EQ(waiting.all(make_fifo_order()), (Ids{7, 1, 2, 0, 5}));
}

TEST(ReadOrder, FewestMissingServesWhoIsNearestToBeingComplete) {
    Waiting waiting;
    waiting.add({5, 2}, 9);
    waiting.add({1, 4, 0}, 3);
    waiting.add({7, 3}, 1);
    EXPECT_EQ(waiting.all(make_fewest_missing_order()), (Ids{5, 2, 7, 3, 1, 4, 0}));
}

TEST(ReadOrder, FewestMissingCountsWhatIsOnItsWayAsMissing) {
    Waiting waiting;
    waiting.add({5, 2, 3}, 1);
    waiting.add({7, 8}, 2);
    waiting.start(5);
    waiting.start(2);
    EXPECT_EQ(waiting.next(*make_fewest_missing_order()), ExpertId(7));
    waiting.arrive(5);
    waiting.arrive(2);
    EXPECT_EQ(waiting.next(*make_fewest_missing_order()), ExpertId(3));
}

TEST(ReadOrder, MostWaitersServesMostRequestsAndAmongEqualsTheMostLagging) {
    Waiting waiting;
    waiting.add({5, 2, 7}, 1);
    waiting.add({1, 7}, 2);
    waiting.add({1, 7}, 3);
    waiting.add({3}, 4);
    EXPECT_EQ(waiting.all(make_most_waiters_order()), (Ids{7, 1, 5, 2, 3}));
}

TEST(ReadOrder, NobodyIsReadForTwiceAndNothingThatIsThere) {
    for (const ReadOrderRow& row : read_orders()) {
        Waiting waiting;
        waiting.add({5, 2}, 2);
        waiting.add({2, 8}, 1);
        waiting.start(5);
        waiting.start(2);
        EXPECT_EQ(waiting.next(*row.make()), ExpertId(8)) << row.name;
        waiting.arrive(2);
        EXPECT_EQ(waiting.next(*row.make()), ExpertId(8)) << row.name;
        waiting.start(8);
        EXPECT_EQ(waiting.next(*row.make()), std::nullopt) << row.name;
    }
}

// A computed expert may have been evicted since: it is absent, but nobody needs it.
TEST(ReadOrder, WhatIsComputedIsNotReadAgain) {
    for (const ReadOrderRow& row : read_orders()) {
        Waiting waiting;
        waiting.add({0, 1}, 1);
        waiting.compute(0, 0);
        EXPECT_EQ(waiting.next(*row.make()), ExpertId(1)) << row.name;
    }
}

TEST(ReadOrder, EveryOrderComesToEveryMissingExpert) {
    Prng prng(3);
    for (int round = 0; round < 300; round++) {
        std::vector<std::set<uint32_t>> chosen(prng.between(1, 4));
        std::set<uint32_t> wanted;
        for (std::set<uint32_t>& experts : chosen) {
            while (experts.size() < 3)
                experts.insert(static_cast<uint32_t>(prng.below(16)));
            wanted.insert(experts.begin(), experts.end());
        }
        for (const ReadOrderRow& row : read_orders()) {
            Waiting waiting;
            for (const std::set<uint32_t>& experts : chosen) {
                auto e = experts.begin();
                uint32_t first = *e++;
                uint32_t second = *e++;
                waiting.add({*e, first, second}, prng.below(100));
            }
            Ids order = waiting.all(row.make());
            EXPECT_EQ(std::set(order.begin(), order.end()), wanted) << row.name;
            EXPECT_EQ(order.size(), wanted.size()) << row.name;
        }
    }
}

}  // namespace
}  // namespace bevy
