// The core, stepped by hand: each test is one sentence about what it decides.
#include "core/core.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/core_test_driver.h"

namespace bevy {
namespace {

// Request r uses experts (r, r+1) at every layer: neighbours share one.
CoreDriver::Router neighbours() {
    return [](RequestId request, uint32_t) {
        auto r = static_cast<uint32_t>(request.value);
        return experts({r % 4, (r + 1) % 4});
    };
}

CoreDriver::Router always(std::initializer_list<uint32_t> indices) {
    std::vector<ExpertDemand> demands = experts(indices);
    return [demands](RequestId, uint32_t) { return demands; };
}

TEST(CoreCreate, RefusesFewerSlotsThanExpertsPerToken) {
    CoreConfig config = small_config();
    config.slots = 1;
    auto core = Core::create(config);
    ASSERT_FALSE(core.has_value());
    EXPECT_EQ(core.error().code, ErrorCode::kBudget);
    EXPECT_NE(core.error().message.find("1 slots"), std::string::npos);
}

TEST(CoreCreate, NamesTheKnownPoliciesWhenOneIsUnknown) {
    CoreConfig config = small_config();
    config.policy = "psychic";
    auto core = Core::create(config);
    ASSERT_FALSE(core.has_value());
    EXPECT_NE(core.error().hint.find("bevy, bevy-request"), std::string::npos);
    config.policy = "bevy";
    config.eviction = "random";
    core = Core::create(config);
    ASSERT_FALSE(core.has_value());
    EXPECT_NE(core.error().hint.find("two-rate"), std::string::npos);
}

TEST(Core, OneTokenGoesThroughAllStagesAndReadsEachMissOnce) {
    CoreDriver d(small_config(), always({1, 3}));
    RequestId id = d.arrive(1);
    d.decide();
    ASSERT_TRUE(d.step);
    EXPECT_EQ(d.step->stage, 0u);
    ASSERT_EQ(d.step->passes.size(), 1u);
    EXPECT_TRUE(d.step->passes[0].wants_logits);
    d.finish_step();
    d.decide();
    EXPECT_FALSE(d.step);  // both experts are missing
    ASSERT_EQ(d.reads.size(), 2u);
    EXPECT_EQ(d.reads[0].expert, ExpertId(1));
    EXPECT_EQ(d.reads[1].expert, ExpertId(3));
    d.run_until_sampling(id);
    EXPECT_EQ(d.core().stats().reads_started, 4u);
    EXPECT_EQ(d.core().stats().expert_misses, 4u);
    d.sample();
    d.run_until_sampling(id);  // the second token finds everything resident
    EXPECT_EQ(d.core().stats().reads_started, 4u);
    EXPECT_EQ(d.core().stats().expert_hits, 4u);
    d.sample(true);
    EXPECT_TRUE(d.core().idle());
}

TEST(Core, ARequestWhoseExpertsAreResidentRunsAheadOfOneThatWaits) {
    // Requests 1 and 2 share nothing; 1's experts become resident first.
    auto router = [](RequestId request, uint32_t) {
        return request.value == 1 ? experts({0, 1}) : experts({2, 3});
    };
    CoreDriver d(small_config(), router);
    RequestId first = d.arrive(1);
    d.run_until_sampling(first);
    d.sample();
    RequestId second = d.arrive(1);
    d.decide();
    // The newcomer and the first enter together; then the first runs on while the second waits.
    ASSERT_TRUE(d.step);
    d.finish_step();
    d.decide();
    ASSERT_TRUE(d.step);
    while (d.step) {
        d.finish_step();
        d.decide();
    }
    EXPECT_EQ(d.find(first)->phase, Phase::kSampling);
    EXPECT_TRUE(d.find(second)->waiting());
    EXPECT_EQ(d.find(second)->stage, 1u);
}

TEST(Core, InLockstepNobodyAdvancesBeforeAllExpertsHaveArrived) {
    CoreConfig config = small_config();
    config.policy = "lockstep";
    auto router = [](RequestId request, uint32_t) {
        return request.value == 1 ? experts({0, 1}) : experts({2, 3});
    };
    CoreDriver d(config, router);
    RequestId first = d.arrive(1);
    d.run_until_sampling(first);
    d.arrive(1);
    d.decide();
    EXPECT_FALSE(d.step);  // a token is being sampled
    d.sample();
    d.decide();
    ASSERT_TRUE(d.step);
    EXPECT_EQ(d.step->advancing.size(), 2u);
    d.finish_step();
    d.decide();
    EXPECT_FALSE(d.step);
    d.finish_read();
    d.decide();
    EXPECT_FALSE(d.step);
    d.finish_read();
    d.decide();
    ASSERT_TRUE(d.step);
    EXPECT_EQ(d.step->advancing.size(), 2u);
    EXPECT_EQ(d.step->uses.size(), 4u);
}

TEST(Core, AnExpertIsComputedOnceForAllRequestsOfTheLayerWaitingOnesIncluded) {
    CoreDriver d(small_config(), neighbours());
    d.arrive(1);  // 1: experts 1, 2
    d.arrive(1);  // 2: experts 2, 3
    d.decide();
    d.finish_step();
    d.decide();
    d.finish_read();  // 1
    d.finish_read();  // 2: request 1 is complete, request 2 has one of two
    d.decide();
    // Whatever the hold rule decides for the dense part, expert 2 runs once for both.
    std::set<uint32_t> seqs;
    auto count = [&](const StartStep& step) {
        for (const StepUse& use : step.uses) {
            if (use.expert == ExpertIndex(2))
                seqs.insert(use.seq.value);
        }
    };
    ASSERT_TRUE(d.step);
    count(*d.step);
    EXPECT_EQ(seqs.size(), 2u);
}

TEST(Core, AnExpertThatTwoRequestsNeedIsReadOnce) {
    CoreDriver d(small_config(), always({0, 1}));
    RequestId a = d.arrive(1);
    RequestId b = d.arrive(1);
    d.run_until_sampling(a);
    d.run_until_sampling(b);
    EXPECT_EQ(d.core().stats().reads_started, 4u);
    EXPECT_EQ(d.core().stats().expert_misses + d.core().stats().expert_joins +
                  d.core().stats().expert_hits,
              8u);
}

TEST(Core, ReadsServeTheMostLaggingRequestFirst) {
    CoreConfig config = small_config();
    config.reads_inflight_max = 1;
    auto router = [](RequestId request, uint32_t layer) {
        if (request.value == 1)
            return layer == 0 ? experts({0, 1}) : experts({2, 3});
        return experts({2, 3});
    };
    CoreDriver d(config, router);
    RequestId leader = d.arrive(1);
    d.decide();
    d.finish_step();
    d.decide();
    d.finish_read();
    d.decide();
    d.finish_read();  // the leader's layer 0 is complete
    d.decide();
    RequestId laggard = d.arrive(1);
    while (d.step) {
        d.finish_step();
        d.decide();
    }
    // The leader waits at layer 1, the newcomer at layer 0; one read of the leader may be in
    // flight.
    ASSERT_TRUE(d.find(leader)->waiting());
    ASSERT_TRUE(d.find(laggard)->waiting());
    ASSERT_LT(d.find(laggard)->progress, d.find(leader)->progress + 3);
    d.finish_read();
    d.decide();
    ASSERT_EQ(d.reads.size(), 1u);
    bool newcomer_lags = d.find(laggard)->lags_behind(*d.find(leader));
    EXPECT_EQ(d.reads[0].expert.value / 4, newcomer_lags ? 0u : 1u);
}

TEST(Core, CancellingFreesPinsAtOnceAndCancelsUnsharedReads) {
    CoreDriver d(small_config(), neighbours());
    RequestId a = d.arrive(1);
    RequestId b = d.arrive(1);
    d.decide();
    d.finish_step();
    d.decide();
    ASSERT_EQ(d.reads.size(), 2u);  // experts 1 (a alone) and 2 (a and b)
    d.cancel(a);
    d.decide();
    ASSERT_EQ(d.cancelled.size(), 1u);
    EXPECT_EQ(d.cancelled[0], d.reads[0].ticket);
    EXPECT_EQ(d.find(a), nullptr);
    d.finish_read(false);  // the cancelled one
    EXPECT_TRUE(d.failed.empty());
    d.run_until_sampling(b);
    d.sample(true);
    EXPECT_TRUE(d.core().idle());
    EXPECT_EQ(d.state().cache.slots_pinned(), 0u);
}

TEST(Core, ACancelledRequestKeepsItsRowsUntilTheStepInFlightIsDone) {
    CoreDriver d(small_config(), always({0, 1}));
    RequestId a = d.arrive(1);
    d.decide();
    ASSERT_TRUE(d.step);
    d.cancel(a);
    d.decide();
    EXPECT_FALSE(d.core().idle());
    d.finish_step();
    d.decide();
    EXPECT_TRUE(d.core().idle());
}

TEST(Core, AReadErrorFailsOnlyTheRequestsThatNeedTheExpert) {
    auto router = [](RequestId request, uint32_t) {
        return request.value == 1 ? experts({0, 1}) : experts({2, 3});
    };
    CoreDriver d(small_config(), router);
    RequestId a = d.arrive(1);
    RequestId b = d.arrive(1);
    d.decide();
    d.finish_step();
    d.decide();
    d.finish_read(false);
    d.decide();
    ASSERT_EQ(d.failed.size(), 1u);
    EXPECT_EQ(d.failed[0].request, a);
    EXPECT_EQ(d.failed[0].expert, ExpertId(0));
    d.run_until_sampling(b);
    EXPECT_EQ(d.find(b)->phase, Phase::kSampling);
    EXPECT_EQ(d.core().stats().requests_failed, 1u);
}

TEST(Core, PromptsAreCutAtAbsoluteMultiplesOfTheChunkLength) {
    CoreDriver d(small_config(), always({0, 1}));
    RequestId id = d.arrive(19);  // chunks of 8: 8, 8, 3
    std::vector<PassRange> passes;
    for (int i = 0; i < 1000; i++) {
        d.decide();
        if (d.step) {
            passes.insert(passes.end(), d.step->passes.begin(), d.step->passes.end());
            d.finish_step();
        } else if (!d.reads.empty()) {
            d.finish_read();
        } else {
            break;
        }
    }
    ASSERT_EQ(d.find(id)->phase, Phase::kSampling);
    ASSERT_EQ(passes.size(), 3u);
    EXPECT_EQ(passes[0].tokens, 8u);
    EXPECT_FALSE(passes[0].wants_logits);
    EXPECT_EQ(passes[1].first_position, 8u);
    EXPECT_EQ(passes[2].first_position, 16u);
    EXPECT_EQ(passes[2].tokens, 3u);
    EXPECT_TRUE(passes[2].wants_logits);
}

TEST(Core, AChunkThatNeedsMoreExpertsThanThereAreSlotsGoesThroughInWaves) {
    for (const char* policy : {"bevy", "lockstep"}) {
        CoreConfig config = small_config();
        config.slots = 2;
        config.policy = policy;
        CoreDriver d(config, always({0, 1, 2, 3}));
        RequestId id = d.arrive(8);
        d.run_until_sampling(id);
        EXPECT_EQ(d.find(id)->phase, Phase::kSampling) << policy;
        EXPECT_EQ(d.core().stats().reads_started, 8u) << policy;
    }
}

TEST(Core, OnlyAsManyPromptsRunAtOnceAsThereAreLanes) {
    CoreDriver d(small_config(), always({0, 1}));
    std::vector<RequestId> ids;
    for (int i = 0; i < 4; i++)
        ids.push_back(d.arrive(8));
    d.decide();
    ASSERT_TRUE(d.step);
    EXPECT_EQ(d.step->advancing.size(), 2u);
    for (RequestId id : ids) {
        d.run_until_sampling(id);
        d.sample(true);
    }
    EXPECT_TRUE(d.core().idle());
    EXPECT_EQ(d.core().stats().requests_finished, 4u);
}

TEST(Core, ANewcomerStartsAtATokenBoundary) {
    CoreDriver d(small_config(), always({0, 1}));
    RequestId a = d.arrive(1);
    d.run_until_sampling(a);
    d.sample();
    d.decide();
    d.finish_step();  // a is at layer 0 of its second token
    d.decide();
    RequestId b = d.arrive(1);
    d.decide();
    uint64_t stages = 3;
    EXPECT_EQ(d.find(b)->progress % stages, 0u);
    EXPECT_GE(d.find(b)->progress + stages, d.find(a)->progress);
}

TEST(Core, TheQueueIsBoundedAndServedInOrder) {
    CoreConfig config = small_config();
    config.sequences = 1;
    config.queue_max = 2;
    CoreDriver d(config, always({0, 1}));
    RequestId a = d.arrive(1);
    d.decide();
    RequestId b = d.arrive(1);
    RequestId c = d.arrive(1);
    EXPECT_FALSE(d.core().can_queue());
    EXPECT_TRUE(d.core().progress(b)->queued);
    d.run_until_sampling(a);
    d.sample(true);
    d.run_until_sampling(b);
    EXPECT_NE(d.find(b), nullptr);
    EXPECT_EQ(d.find(c), nullptr);
    EXPECT_TRUE(d.core().can_queue());
}

TEST(Core, ADensePartIsHeldForAJoinerThatArrivesSoonButNotForever) {
    CoreConfig config = small_config();
    config.dense_bytes = {64 << 20, 64 << 20, 64 << 20};  // a launch costs far more than a read
    config.reads_inflight_max = 1;
    CoreDriver d(config, neighbours());
    RequestId warm = d.arrive(1);  // teaches the core what steps and reads cost
    d.run_until_sampling(warm);
    d.sample(true);
    RequestId a = d.arrive(1);  // experts 2, 3
    RequestId b = d.arrive(1);  // experts 3, 0
    d.decide();
    d.finish_step();
    d.decide();
    d.finish_read();  // 3: a has all (2 is warm); b lacks 0
    d.decide();
    ASSERT_TRUE(d.find(b)->waiting());
    while (d.step) {  // the experts run, nobody advances
        EXPECT_TRUE(d.step->advancing.empty());
        d.finish_step();
        d.decide();
    }
    EXPECT_FALSE(d.step);
    ASSERT_TRUE(d.core().next_deadline().has_value());
    // The joiner does not come: at the deadline the group goes without it.
    d.pass_time(*d.core().next_deadline() - d.now());
    d.decide();
    ASSERT_TRUE(d.step);
    ASSERT_EQ(d.step->advancing.size(), 1u);
    EXPECT_EQ(d.requests_by_seq[d.step->advancing[0]], a);
}

}  // namespace
}  // namespace bevy
