// Prefetching, stepped by hand: when a guess is read, when it is not, and what becomes of it.
#include <gtest/gtest.h>

#include <string_view>
#include <utility>
#include <vector>

#include "core/core_test_driver.h"

namespace bevy {
namespace {

using Ids = std::vector<uint32_t>;

// The guesses come from the test: next-gate repeats what the compute backend says.
CoreConfig guessing_config(uint32_t layers = 2) {
    CoreConfig config = small_config();
    config.moe_layers = layers;
    config.dense_bytes.assign(layers + 1, 0);
    config.slots = layers * config.experts_per_layer;
    config.reads_inflight_max = 4;
    config.policy = "bevy+prefetch-next-gate";
    config.guessed_layers = 1;
    return config;
}

// What is chosen and what is guessed, by layer; the same for every request.
CoreDriver::Router routes(const std::vector<std::vector<ExpertDemand>>& by_layer) {
    return [=](RequestId, uint32_t layer) { return by_layer[layer]; };
}
CoreDriver::Guesser guesses(const std::vector<std::vector<ExpertIndex>>& by_layer) {
    return [=](RequestId, uint32_t layer) { return by_layer[layer]; };
}

uint32_t protections(const CoreDriver& d) {
    const CoreConfig& config = d.state().config;
    uint32_t sum = 0;
    for (uint32_t e = 0; e < config.moe_layers * config.experts_per_layer; e++)
        sum += d.state().cache.protections(ExpertId(e));
    return sum;
}

// A request that has entered and revealed layer 0; nothing is read yet.
RequestId enter(CoreDriver& d, uint32_t prompt_tokens = 1) {
    RequestId id = d.arrive(prompt_tokens);
    d.decide();
    d.finish_step();
    d.decide();
    return id;
}

// Both experts of layer 0 arrive: the step of stage 1 runs, and the link is idle but for guesses.
void arrive_at_layer_0(CoreDriver& d) {
    d.finish_read_of(ExpertId(0));
    d.finish_read_of(ExpertId(1));
    d.decide();
}

TEST(Prefetch, AGuessIsReadOnlyWhileNoDemandReadIsWantedOrInFlight) {
    CoreDriver d(guessing_config(), routes({experts({0, 1}), experts({2, 3})}),
                 guesses({indices({2, 3}), {}}));
    enter(d);
    EXPECT_EQ(d.experts_in_flight(), (Ids{0, 1}));  // two more could be
    d.finish_read_of(ExpertId(0));
    d.decide();
    EXPECT_EQ(d.experts_in_flight(), (Ids{1}));
    d.finish_read_of(ExpertId(1));
    d.decide();
    EXPECT_EQ(d.experts_in_flight(), (Ids{6, 7}));
    EXPECT_TRUE(d.step);  // nobody waits for them
    EXPECT_EQ(d.core().stats().prefetches, 2u);
    EXPECT_EQ(d.core().stats().reads_started, 4u);
}

TEST(Prefetch, NoMoreGuessesThanAllowedAreInFlight) {
    CoreConfig config = guessing_config();
    config.prefetch_reads_max = 1;
    CoreDriver d(config, routes({experts({0, 1}), experts({2, 3})}),
                 guesses({indices({3, 2}), {}}));
    enter(d);
    arrive_at_layer_0(d);
    EXPECT_EQ(d.experts_in_flight(), (Ids{7}));  // the likeliest first
    d.finish_read();
    d.decide();
    EXPECT_EQ(d.experts_in_flight(), (Ids{6}));
}

TEST(Prefetch, ADemandJoinsAGuessInFlightAndAWrongGuessIsCancelled) {
    CoreDriver d(guessing_config(), routes({experts({0, 1}), experts({2, 0})}),
                 guesses({indices({2, 3}), {}}));
    RequestId id = enter(d);
    arrive_at_layer_0(d);
    ASSERT_EQ(d.experts_in_flight(), (Ids{6, 7}));
    Ticket wrong = d.reads[1].ticket;
    d.finish_step();  // layer 1 wants 2 and 0, not 3
    d.decide();
    EXPECT_EQ(d.cancelled, (std::vector{wrong}));
    EXPECT_EQ(d.experts_in_flight(), (Ids{6, 7, 4}));  // expert 2 (6) is not read twice
    EXPECT_TRUE(d.find(id)->waiting());
    d.finish_read_of(ExpertId(7), false);
    EXPECT_TRUE(d.failed.empty());
    d.run_until_sampling(id);
    EXPECT_EQ(d.find(id)->phase, Phase::kSampling);
    const CoreStats& stats = d.core().stats();
    EXPECT_EQ(stats.expert_misses, 3u);
    EXPECT_EQ(stats.expert_prefetched, 1u);
    EXPECT_EQ(stats.expert_hits + stats.expert_joins, 0u);
    EXPECT_EQ(stats.prefetches, 2u);
    EXPECT_EQ(stats.prefetches_useful, 1u);
    EXPECT_EQ(stats.guesses, 2u);
    EXPECT_EQ(stats.guesses_right, 1u);
    EXPECT_EQ(stats.reads_cancelled, 1u);
    EXPECT_EQ(stats.reads_failed, 0u);
}

TEST(Prefetch, WhatArrivedForAGuessIsThereWhenItsLayerIsRevealed) {
    CoreDriver d(guessing_config(), routes({experts({0, 1}), experts({2, 3})}),
                 guesses({indices({2, 3}), {}}));
    RequestId id = enter(d);
    arrive_at_layer_0(d);
    d.finish_read();
    d.finish_read();
    d.finish_step();
    EXPECT_TRUE(d.find(id)->ready());
    d.decide();
    EXPECT_TRUE(d.step);
    EXPECT_TRUE(d.reads.empty());
    EXPECT_EQ(d.core().stats().expert_prefetched, 2u);
    EXPECT_EQ(d.core().stats().prefetches_useful, 2u);
}

TEST(Prefetch, NobodyGuessesWhileMoreRequestsRunThanThePolicyNames) {
    CoreConfig config = guessing_config();
    config.policy = "bevy-unbatched+prefetch-next-gate@1";
    CoreDriver d(config, routes({experts({0, 1}), experts({2, 3})}),
                 guesses({indices({2, 3}), {}}));
    RequestId first = enter(d);
    EXPECT_EQ(protections(d), 2u);
    RequestId second = d.arrive(1);
    arrive_at_layer_0(d);
    ASSERT_TRUE(d.step);
    EXPECT_FALSE(d.step->wants_guesses);
    d.run_until_sampling(first);
    d.run_until_sampling(second);
    EXPECT_EQ(protections(d), 0u);
    EXPECT_EQ(d.core().stats().guesses, 2u);  // the first request's, made when it was alone
    d.cancel(second);
    d.sample();
    d.decide();
    ASSERT_TRUE(d.step);
    EXPECT_TRUE(d.step->wants_guesses);  // alone again
}

// Two requests enter layer 0 one by one, and both expect expert 3 at layer 1, which is being read;
// the first one has just chosen others.
struct SharedGuess {
    SharedGuess() : d(config(), router(), guesses({indices({3}), {}})) {
        d.arrive(1);
        other = d.arrive(1);
        d.decide();
        d.finish_step();
        d.decide();
        d.finish_step();
        d.decide();
        arrive_at_layer_0(d);
        EXPECT_EQ(d.experts_in_flight(), (Ids{7}));
        d.finish_step();
        d.decide();
    }
    static CoreConfig config() {
        CoreConfig config = guessing_config();
        config.policy = "bevy-unbatched+prefetch-next-gate";
        return config;
    }
    static CoreDriver::Router router() {
        return [](RequestId request, uint32_t layer) {
            return layer == 1 && request.value == 2 ? experts({0, 3}) : experts({0, 1});
        };
    }
    CoreDriver d;
    RequestId other;
};

TEST(Prefetch, AWrongGuessThatAnotherRequestStillExpectsGoesOn) {
    SharedGuess world;
    CoreDriver& d = world.d;
    EXPECT_TRUE(d.cancelled.empty());
    EXPECT_EQ(d.core().stats().prefetches_useful, 0u);
    d.run_until_sampling(world.other);
    EXPECT_EQ(d.core().stats().prefetches_useful, 1u);
    EXPECT_EQ(d.core().stats().expert_prefetched, 1u);
    EXPECT_EQ(d.core().stats().reads_cancelled, 0u);
}

TEST(Prefetch, AGuessThatNobodyExpectsAnyMoreIsCancelled) {
    SharedGuess world;
    CoreDriver& d = world.d;
    d.cancel(world.other);
    ASSERT_TRUE(d.step);  // its step has begun: it goes when that ends
    d.decide();
    EXPECT_TRUE(d.cancelled.empty());
    d.finish_step();
    d.decide();
    EXPECT_EQ(d.cancelled.size(), 1u);
    EXPECT_EQ(protections(d), 0u);
}

// A guess that was cancelled is in flight, then demanded by somebody else.
struct CancelledGuess {
    CancelledGuess() : d(guessing_config(), router(), guesses({indices({3}), {}})) {
        first = enter(d);
        arrive_at_layer_0(d);
        second = d.arrive(1);
        d.finish_step();  // the first one's layer 1 wants others
        d.decide();       // the second enters
        d.finish_step();
        d.decide();
    }
    static CoreDriver::Router router() {
        return [](RequestId request, uint32_t layer) {
            if (layer == 0)
                return experts({0, 1});
            return request.value == 1 ? experts({0, 1}) : experts({3, 2});
        };
    }
    CoreDriver d;
    RequestId first;
    RequestId second;
};

TEST(Prefetch, ACancelledGuessThatIsDemandedAndFailsIsReadAgainAndFailsNobody) {
    CancelledGuess world;
    CoreDriver& d = world.d;
    ASSERT_EQ(d.cancelled.size(), 1u);
    ASSERT_EQ(d.experts_in_flight().front(), 7u);
    while (d.step) {
        d.finish_step();
        d.decide();
    }
    ASSERT_TRUE(d.find(world.second)->waiting());
    d.finish_read_of(ExpertId(7), false);
    d.decide();
    EXPECT_TRUE(d.failed.empty());
    EXPECT_EQ(d.core().stats().reads_failed, 0u);
    d.run_until_sampling(world.second);
    EXPECT_EQ(d.find(world.second)->phase, Phase::kSampling);
    EXPECT_EQ(d.core().stats().expert_misses, 6u);
    EXPECT_EQ(d.core().stats().expert_hits, 2u);  // layer 0 of the second
    EXPECT_EQ(d.core().stats().expert_joins + d.core().stats().expert_prefetched, 0u);
}

TEST(Prefetch, ACancelledGuessThatIsDemandedKeepsOtherGuessesFromTheLink) {
    CoreConfig config = guessing_config();
    config.prefetch_reads_max = 4;
    // At layer 1 both requests guess 2 for the next token's layer 0.
    CoreDriver d(config, CancelledGuess::router(), guesses({indices({3}), indices({2})}));
    enter(d);
    arrive_at_layer_0(d);
    RequestId second = d.arrive(1);
    d.finish_step();
    d.decide();
    d.finish_step();
    d.decide();
    while (!d.find(second)->waiting() || d.find(second)->stage != 2) {
        ASSERT_TRUE(d.step);
        d.finish_step();
        d.decide();
    }
    // Everything that is wanted arrives, but the cancelled read of 7 is still on its way.
    for (uint32_t expert : d.experts_in_flight()) {
        if (expert != 7)
            d.finish_read_of(ExpertId(expert));
    }
    d.decide();
    EXPECT_EQ(d.experts_in_flight(), (Ids{7}));
    EXPECT_TRUE(d.find(second)->waiting());
}

TEST(Prefetch, AGuessThatCanNotBeReadFailsNobodyAndIsNotTriedAgain) {
    CoreDriver d(guessing_config(), routes({experts({0, 1}), experts({0, 1})}),
                 guesses({indices({3}), {}}));
    RequestId id = enter(d);
    arrive_at_layer_0(d);
    ASSERT_EQ(d.experts_in_flight(), (Ids{7}));
    d.finish_read(false);
    d.decide();
    EXPECT_TRUE(d.reads.empty());
    EXPECT_TRUE(d.failed.empty());
    for (int token = 0; token < 3; token++) {
        d.run_until_sampling(id);
        ASSERT_EQ(d.find(id)->phase, Phase::kSampling);
        d.sample();
    }
    EXPECT_EQ(d.core().stats().prefetches, 1u);
    EXPECT_EQ(d.core().stats().reads_failed, 1u);
    EXPECT_EQ(d.core().stats().requests_failed, 0u);
}

TEST(Prefetch, ADemandThatJoinedAGuessFailsWithIt) {
    CoreDriver d(guessing_config(), routes({experts({0, 1}), experts({3, 2})}),
                 guesses({indices({3}), {}}));
    RequestId id = enter(d);
    arrive_at_layer_0(d);
    d.finish_step();
    d.finish_read_of(ExpertId(7), false);
    d.decide();
    ASSERT_EQ(d.failed.size(), 1u);
    EXPECT_EQ(d.failed[0].request, id);
    EXPECT_EQ(d.failed[0].expert, ExpertId(7));
}

TEST(Prefetch, AGuessTakesNoSlotThatIsPinnedOrExpected) {
    CoreConfig config = guessing_config();
    config.slots = 4;
    // Both need 0 and 1 of layer 0; of layer 1 one expects 2 and 3, the other 0 and 1.
    CoreDriver d(config, routes({experts({0, 1}), experts({0, 1})}),
                 [](RequestId request, uint32_t layer) {
                     if (layer == 1)
                         return indices({});
                     return request.value == 1 ? indices({2, 3}) : indices({0, 1});
                 });
    d.arrive(1);
    enter(d);
    arrive_at_layer_0(d);
    EXPECT_EQ(d.experts_in_flight(), (Ids{6, 7}));
    d.finish_read();
    d.finish_read();
    d.decide();
    EXPECT_TRUE(d.reads.empty());
    EXPECT_EQ(d.state().cache.slots_pinned(), 2u);
    EXPECT_EQ(d.state().cache.evictable(), 2u);
    EXPECT_EQ(d.core().stats().evictions, 0u);
    d.finish_step();  // now 4 and 5 are demanded: protection yields to that
    d.decide();
    EXPECT_EQ(d.experts_in_flight(), (Ids{4, 5}));
}

TEST(Prefetch, TheNearestLayersComeFirstAndAmongThemTheMostLaggingRequest) {
    CoreConfig config = guessing_config(3);
    config.lookahead = 2;
    config.guessed_layers = 2;
    config.reads_inflight_max = 8;
    config.prefetch_reads_max = 8;
    // The experts guessed by request 1 are 0 and 1, those of request 2 are 2 and 3.
    CoreDriver d(config, routes({experts({0, 1}), experts({0, 1}), experts({0, 1})}),
                 [](RequestId request, uint32_t layer) {
                     if (layer > 0)
                         return indices({});
                     return request.value == 1 ? indices({1, 0, 0, 1}) : indices({3, 2, 2, 3});
                 });
    d.arrive(1);
    enter(d);
    arrive_at_layer_0(d);
    EXPECT_EQ(d.experts_in_flight(), (Ids{5, 4, 7, 6, 8, 9, 10, 11}));
}

TEST(Prefetch, AnExpertThatStaysExpectedIsNotCancelledInBetween) {
    CoreConfig config = guessing_config(3);
    config.lookahead = 2;
    config.guessed_layers = 2;
    // Layer 2 is expected to use 3 by layer 0, two ahead, and by layer 1, one ahead.
    CoreDriver d(config, routes({experts({0, 1}), experts({0, 1}), experts({0, 1})}),
                 guesses({indices({0, 1, 3, 2}), indices({3}), {}}));
    enter(d);
    arrive_at_layer_0(d);
    ASSERT_EQ(d.experts_in_flight(), (Ids{4, 5}));
    d.finish_read();
    d.finish_read();
    d.decide();
    ASSERT_EQ(d.experts_in_flight(), (Ids{11, 10}));
    Ticket unexpected = d.reads[1].ticket;
    d.finish_step();
    d.decide();
    EXPECT_EQ(d.cancelled, (std::vector{unexpected}));
    // Of two guesses about a layer the last one counts.
    d.finish_read_of(ExpertId(11));
    d.finish_read_of(ExpertId(10), false);
    d.finish_step();
    EXPECT_EQ(d.core().stats().guesses, 3u);
    EXPECT_EQ(d.core().stats().guesses_right, 2u);
}

TEST(Prefetch, AWrongGuessThatIsRepeatedIsStillOne) {
    int token = 0;
    CoreDriver d(
        guessing_config(1),  // each layer is followed by itself
        [&](RequestId, uint32_t) { return ++token == 3 ? experts({0, 3}) : experts({0, 1}); },
        guesses({indices({3})}));
    RequestId id = enter(d);
    arrive_at_layer_0(d);
    ASSERT_EQ(d.experts_in_flight(), (Ids{3}));
    for (int i = 0; i < 2; i++) {
        d.finish_step();  // the head
        d.sample();
        d.decide();
        d.finish_step();  // the next token's router
        d.decide();
    }
    EXPECT_EQ(d.core().stats().prefetches, 1u);
    EXPECT_EQ(d.core().stats().prefetches_useful, 1u);
    EXPECT_EQ(d.core().stats().expert_prefetched, 1u);
    EXPECT_EQ(d.core().stats().reads_cancelled, 0u);
    EXPECT_TRUE(d.find(id)->waiting());
}

TEST(Prefetch, GuessesGoWithTheirRequest) {
    CoreDriver d(guessing_config(), routes({experts({0, 1}), experts({0, 1})}),
                 guesses({indices({2, 3}), indices({2, 3})}));
    RequestId id = enter(d);
    arrive_at_layer_0(d);
    EXPECT_EQ(protections(d), 2u);
    d.cancel(id);
    EXPECT_EQ(protections(d), 2u);  // the step in flight holds the sequence
    d.finish_step();
    EXPECT_EQ(protections(d), 0u);
    d.decide();
    EXPECT_EQ(d.cancelled.size(), 2u);
    d.finish_read(false);
    d.finish_read();
    EXPECT_TRUE(d.core().idle());

    id = enter(d);
    d.run_until_sampling(id);
    EXPECT_EQ(protections(d), 2u);  // of the next token
    d.sample(true);
    EXPECT_EQ(protections(d), 0u);
}

TEST(Prefetch, NothingIsGuessedFromAChunk) {
    bool prompt = true;
    CoreDriver d(
        guessing_config(),
        [&](RequestId, uint32_t) { return prompt ? experts({0, 1, 2, 3}) : experts({0, 1}); },
        guesses({indices({2, 3}), indices({2, 3})}));
    RequestId id = d.arrive(8);
    d.run_until_sampling(id);
    prompt = false;
    EXPECT_EQ(protections(d), 0u);
    EXPECT_EQ(d.core().stats().prefetches, 0u);
    d.sample();
    d.run_until_sampling(id);
    EXPECT_EQ(protections(d), 2u);
}

TEST(Prefetch, WithTheTruthEverythingButTheFirstLayerIsPrefetched) {
    for (std::string_view policy : {"prefetch-oracle", "bevy+prefetch-oracle"}) {
        CoreConfig config = guessing_config();
        config.policy = policy;
        config.guesses_are_true = true;
        // Every token uses two other experts: even tokens 0 and 1, odd ones 2 and 3.
        CoreDriver* world = nullptr;
        auto chosen = [&](RequestId request, uint32_t ahead) {
            uint32_t first = (world->find(request)->position + ahead) % 2 * 2;
            return std::pair(first, first + 1);
        };
        CoreDriver d(
            config,
            [&](RequestId request, uint32_t) {
                auto [a, b] = chosen(request, 0);
                return experts({a, b});
            },
            [&](RequestId request, uint32_t layer) {
                auto [a, b] = chosen(request, layer);  // of the next token after the last layer
                return indices({a, b});
            });
        world = &d;
        RequestId id = d.arrive(1);
        for (int token = 0; token < 2; token++) {
            d.run_until_sampling(id);
            while (!d.reads.empty())
                d.finish_read();
            d.sample();
        }
        const CoreStats& stats = d.core().stats();
        EXPECT_EQ(stats.expert_misses, 2u) << policy;
        EXPECT_EQ(stats.expert_prefetched, 6u) << policy;
        EXPECT_EQ(stats.prefetches, 6u) << policy;
        EXPECT_EQ(stats.prefetches_useful, 6u) << policy;
        EXPECT_EQ(stats.guesses, 6u) << policy;
        EXPECT_EQ(stats.guesses_right, 6u) << policy;
    }
}

}  // namespace
}  // namespace bevy
