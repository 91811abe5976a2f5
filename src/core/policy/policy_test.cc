// What defines each scheduling policy, stepped by hand, and the names that choose one. The rules of
// the default are in core_test.cc.
#include "core/policy/policy.h"

#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/core_test_driver.h"
#include "core/policy/registry.h"

namespace bevy {
namespace {

CoreConfig with_policy(std::string_view policy) {
    CoreConfig config = small_config();
    config.policy = policy;
    return config;
}

// Request 1 uses 0 and 1, all others 2 and 3.
CoreDriver::Router two_kinds() {
    return [](RequestId request, uint32_t) {
        return request.value == 1 ? experts({0, 1}) : experts({2, 3});
    };
}

std::vector<uint32_t> computed(const StartStep& step) {
    std::vector<uint32_t> experts;
    for (const StepUse& use : step.uses)
        experts.push_back(use.expert.value);
    return experts;
}

using Indices = std::vector<uint32_t>;

// Both requests have revealed layer 0, and nothing has arrived.
void enter_together(CoreDriver& d) {
    d.arrive(1);
    d.arrive(1);
    d.decide();
    ASSERT_TRUE(d.step);
    ASSERT_EQ(d.step->advancing.size(), 2u);
    d.finish_step();
    d.decide();
    ASSERT_FALSE(d.step);
}

// The last expert to come is one time that of the last request, the other time of the first.
constexpr std::array<std::array<uint32_t, 4>, 2> kArrivals = {{{0, 1, 2, 3}, {2, 3, 1, 0}}};

CoreConfig reading_all_at_once(std::string_view policy) {
    CoreConfig config = with_policy(policy);
    config.reads_inflight_max = 4;
    return config;
}

TEST(LockstepOverlap, ComputesWhatIsThereButNobodyAdvancesBeforeAllHaveArrived) {
    for (const std::array<uint32_t, 4>& arrivals : kArrivals) {
        CoreDriver d(reading_all_at_once("lockstep-overlap"), two_kinds());
        enter_together(d);
        for (uint32_t expert : std::span(arrivals).first(3)) {
            d.finish_read_of(ExpertId(expert));
            d.decide();
            ASSERT_TRUE(d.step) << expert;
            EXPECT_EQ(d.step->stage, 1u);
            EXPECT_EQ(computed(*d.step), (Indices{expert}));
            EXPECT_TRUE(d.step->advancing.empty());
            d.finish_step();
            d.decide();
            EXPECT_FALSE(d.step);
        }
        d.finish_read_of(ExpertId(arrivals[3]));
        d.decide();
        ASSERT_TRUE(d.step);
        EXPECT_EQ(computed(*d.step), (Indices{arrivals[3]}));  // the others are done
        EXPECT_EQ(d.step->advancing.size(), 2u);
        EXPECT_EQ(d.core().stats().idle_steps, 3u);
    }
}

TEST(Lockstep, ComputesNothingWhileSomethingCanStillArrive) {
    for (const std::array<uint32_t, 4>& arrivals : kArrivals) {
        CoreDriver d(reading_all_at_once("lockstep"), two_kinds());
        enter_together(d);
        for (uint32_t expert : std::span(arrivals).first(3)) {
            d.finish_read_of(ExpertId(expert));
            d.decide();
            EXPECT_FALSE(d.step) << expert;
        }
        d.finish_read_of(ExpertId(arrivals[3]));
        d.decide();
        ASSERT_TRUE(d.step);
        EXPECT_EQ(computed(*d.step), (Indices{0, 1, 2, 3}));
        EXPECT_EQ(d.step->advancing.size(), 2u);
        EXPECT_EQ(d.core().stats().idle_steps, 0u);
    }
}

TEST(Bevy, ComputesWhatIsThereForWaitingRequestsWhenNobodyIsReady) {
    for (std::string_view policy : {"bevy", "bevy-unbatched", "bevy-unordered"}) {
        CoreDriver d(with_policy(policy), two_kinds());
        d.arrive(1);
        d.decide();
        d.finish_step();
        d.decide();
        d.finish_read_of(ExpertId(1));
        d.decide();
        ASSERT_TRUE(d.step) << policy;
        EXPECT_EQ(computed(*d.step), (Indices{1}));
        EXPECT_TRUE(d.step->advancing.empty());
    }
}

TEST(Lockstep, ANewcomerWaitsUntilTheBatchHasFinishedItsTokens) {
    for (std::string_view policy : {"lockstep", "lockstep-overlap"}) {
        CoreDriver d(with_policy(policy), two_kinds());
        RequestId first = d.arrive(1);
        d.decide();
        d.finish_step();
        RequestId second = d.arrive(1);
        d.run_until_sampling(first);
        EXPECT_EQ(d.find(second)->phase, Phase::kEntry) << policy;
        d.decide();
        EXPECT_FALSE(d.step) << policy;  // not before the first one's token is taken
        d.sample();
        d.decide();
        ASSERT_TRUE(d.step) << policy;
        EXPECT_EQ(d.step->advancing.size(), 2u) << policy;
    }
}

TEST(BevyRequest, ComputesNothingForAWaitingRequestEvenIfAnotherNeedsTheSame) {
    // Requests 1 and 2 share expert 2; 2 also needs 3.
    auto router = [](RequestId request, uint32_t) {
        return request.value == 1 ? experts({1, 2}) : experts({2, 3});
    };
    CoreDriver d(with_policy("bevy-request"), router);
    enter_together(d);
    d.finish_read_of(ExpertId(1));
    d.decide();
    EXPECT_FALSE(d.step);
    d.finish_read_of(ExpertId(2));
    d.decide();
    ASSERT_TRUE(d.step);
    EXPECT_EQ(d.step->advancing, (std::vector{SeqIndex(0)}));
    EXPECT_EQ(computed(*d.step), (Indices{1, 2}));
    for (const StepUse& use : d.step->uses)
        EXPECT_EQ(use.seq, SeqIndex(0));
}

TEST(BevyRequest, ReadyRequestsOfALayerShareAStep) {
    CoreDriver d(reading_all_at_once("bevy-request"), two_kinds());
    enter_together(d);
    while (!d.reads.empty())
        d.finish_read();
    d.decide();
    ASSERT_TRUE(d.step);
    EXPECT_EQ(d.step->advancing.size(), 2u);
    EXPECT_EQ(computed(*d.step), (Indices{0, 1, 2, 3}));
}

TEST(BevyRequest, ComputesForAWaitingRequestOnlyToMakeRoom) {
    CoreConfig config = with_policy("bevy-request");
    config.slots = 2;
    CoreDriver d(config, [](RequestId, uint32_t) { return experts({0, 1, 2, 3}); });
    d.arrive(8);  // a chunk that needs more experts than there are slots
    d.decide();
    d.finish_step();
    d.decide();
    d.finish_read_of(ExpertId(0));
    d.decide();
    EXPECT_FALSE(d.step);  // something is on its way
    d.finish_read_of(ExpertId(1));
    d.decide();
    ASSERT_TRUE(d.step);  // nothing is, and nothing can be
    EXPECT_EQ(computed(*d.step), (Indices{0, 1}));
    EXPECT_TRUE(d.step->advancing.empty());
    d.finish_step();
    d.decide();
    EXPECT_FALSE(d.step);
    EXPECT_EQ(d.experts_in_flight(), (Indices{2, 3}));
}

TEST(BevyUnbatched, ReadyRequestsDoNotShareAStep) {
    CoreDriver d(with_policy("bevy-unbatched"),
                 [](RequestId, uint32_t) { return experts({0, 1}); });
    d.arrive(1);
    d.arrive(1);
    for (uint32_t seq : {0u, 1u}) {  // even the entry
        d.decide();
        ASSERT_TRUE(d.step);
        EXPECT_EQ(d.step->stage, 0u);
        EXPECT_EQ(d.step->advancing, (std::vector{SeqIndex(seq)}));
        d.finish_step();
    }
    d.decide();
    d.finish_read();
    d.finish_read();
    for (uint32_t seq : {0u, 1u}) {
        d.decide();
        ASSERT_TRUE(d.step);
        EXPECT_EQ(d.step->stage, 1u);
        EXPECT_EQ(d.step->advancing, (std::vector{SeqIndex(seq)}));
        EXPECT_EQ(computed(*d.step), (Indices{0, 1}));
        for (const StepUse& use : d.step->uses)
            EXPECT_EQ(use.seq, SeqIndex(seq));
        d.finish_step();
    }
}

// Request 1 has run ahead to layer 2, then 2 came to layer 1; both are ready now.
void run_ahead(CoreDriver& d) {
    enter_together(d);
    auto arrive = [&](uint32_t layer, uint32_t first) {
        d.finish_read_of(ExpertId(4 * layer + first));
        d.finish_read_of(ExpertId(4 * layer + first + 1));
    };
    auto advance = [&](uint32_t seq) {
        d.decide();
        ASSERT_TRUE(d.step);
        ASSERT_EQ(d.step->advancing, (std::vector{SeqIndex(seq)}));
        d.finish_step();
        d.decide();
    };
    arrive(0, 0);
    advance(0);
    arrive(1, 0);
    advance(0);
    arrive(0, 2);
    advance(1);
    arrive(2, 0);
    arrive(1, 2);
    d.decide();
}

TEST(BevyUnordered, WhoIsReadyLongestRunsFirstHoweverFarAhead) {
    for (std::string_view policy : {"bevy", "bevy-unordered"}) {
        CoreConfig config = with_policy(policy);
        config.moe_layers = 3;
        config.slots = 12;
        config.reads_inflight_max = 8;
        config.dense_bytes = {0, 0, 0, 0};
        CoreDriver d(config, two_kinds());
        run_ahead(d);
        ASSERT_TRUE(d.step) << policy;
        EXPECT_EQ(d.step->stage, policy == "bevy" ? 2u : 3u);
    }
}

TEST(Policies, AllGetThroughWithTheFewestSlots) {
    for (const std::string& policy : policy_names()) {
        CoreConfig config = with_policy(policy);
        config.slots = config.experts_used;
        config.prefill_sequences = 1;
        config.guessed_layers = 1;
        config.guesses_are_true = true;  // they are not, but nothing depends on it
        CoreDriver d(
            config,
            [&](RequestId request, uint32_t layer) {
                auto e = static_cast<uint32_t>(request.value) + layer;
                return d.find(request)->pass.tokens > 1 ? experts({0, 1, 2, 3})
                                                        : experts({e % 4, (e + 1) % 4});
            },
            [](RequestId, uint32_t layer) { return indices({layer, 3}); });
        std::vector<RequestId> requests = {d.arrive(1), d.arrive(8), d.arrive(8)};
        for (bool last : {false, true}) {
            for (RequestId request : requests) {
                d.run_until_sampling(request);
                d.sample(last);
            }
        }
        while (!d.reads.empty())
            d.finish_read();
        EXPECT_TRUE(d.core().idle()) << policy;
        EXPECT_EQ(d.core().stats().requests_finished, 3u) << policy;
    }
}

TEST(PolicyName, IsARowOrARowWithAPredictor) {
    auto name = parse_policy_name("lockstep");
    ASSERT_TRUE(name.has_value());
    EXPECT_EQ(name->schedule->name, "lockstep");
    EXPECT_EQ(name->predictor, nullptr);
    name = parse_policy_name("bevy+prefetch-transition");
    ASSERT_TRUE(name.has_value());
    EXPECT_EQ(name->schedule->name, "bevy");
    EXPECT_EQ(name->predictor->name, "transition");
    name = parse_policy_name("prefetch-previous-token");
    ASSERT_TRUE(name.has_value());
    EXPECT_EQ(name->schedule->name, "lockstep-overlap");
    EXPECT_EQ(name->predictor->name, "previous-token");
}

TEST(PolicyName, MaySayWithHowManyRequestsThePredictorIsAsked) {
    auto name = parse_policy_name("bevy+prefetch-next-gate");
    ASSERT_TRUE(name.has_value());
    EXPECT_EQ(name->prefetch_requests_max, std::numeric_limits<uint32_t>::max());
    name = parse_policy_name("bevy+prefetch-next-gate@4");
    ASSERT_TRUE(name.has_value());
    EXPECT_EQ(name->schedule->name, "bevy");
    EXPECT_EQ(name->predictor->name, "next-gate");
    EXPECT_EQ(name->prefetch_requests_max, 4u);
    EXPECT_EQ(parse_policy_name("prefetch-transition@12")->prefetch_requests_max, 12u);
    for (std::string_view wrong :
         {"bevy+prefetch-next-gate@", "bevy+prefetch-next-gate@0", "prefetch-transition@-1",
          "prefetch-transition@4x", "prefetch-transition@5000000000", "prefetch-transition@4@4"}) {
        auto found = parse_policy_name(wrong);
        ASSERT_FALSE(found.has_value()) << wrong;
        EXPECT_EQ(found.error().code, ErrorCode::kUnsupported);
        EXPECT_NE(found.error().message.find("no number of requests"), std::string::npos);
    }
    EXPECT_FALSE(parse_policy_name("bevy@4").has_value());
    EXPECT_TRUE(parse_policy_name(kDefaultPolicy).has_value());
}

TEST(PolicyName, EveryListedNameIsKnownAndListedOnce) {
    std::vector<std::string> names = policy_names();
    EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
    EXPECT_EQ(names.size(), schedule_policies().size() * (1 + predictors().size()));
    for (const std::string& name : names)
        EXPECT_TRUE(parse_policy_name(name).has_value()) << name;
}

TEST(PolicyName, AnUnknownScheduleIsNamedAndTheKnownOnesAreListed) {
    for (std::string_view name : {"psychic", "", "bevy+", "bevy+transition", "transition",
                                  "+prefetch-transition", "psychic+prefetch-transition"}) {
        auto found = parse_policy_name(name);
        ASSERT_FALSE(found.has_value()) << name;
        EXPECT_EQ(found.error().code, ErrorCode::kUnsupported);
        EXPECT_NE(found.error().message.find("unknown policy '"), std::string::npos);
        EXPECT_NE(found.error().hint.find("bevy, bevy-request"), std::string::npos);
        EXPECT_NE(found.error().hint.find("+prefetch-PREDICTOR"), std::string::npos);
    }
}

TEST(PolicyName, AnUnknownPredictorIsNamedAndTheKnownOnesAreListed) {
    for (std::string_view predictor : {"psychic", "", "transition+prefetch-frequency"}) {
        for (std::string_view schedule : {"prefetch-", "bevy+prefetch-"}) {
            auto found = parse_policy_name(std::string(schedule) + std::string(predictor));
            ASSERT_FALSE(found.has_value());
            EXPECT_EQ(found.error().code, ErrorCode::kUnsupported);
            EXPECT_EQ(found.error().message, "unknown predictor '" + std::string(predictor) + "'");
            EXPECT_NE(found.error().hint.find("transition"), std::string::npos);
        }
    }
}

TEST(CoreCreate, RefusesPredictorsThatNobodyFeeds) {
    auto refused = [](const CoreConfig& config, ErrorCode code, std::string_view word) {
        auto core = Core::create(config);
        ASSERT_FALSE(core.has_value());
        EXPECT_EQ(core.error().code, code);
        EXPECT_NE(core.error().message.find(word), std::string::npos) << core.error().message;
    };
    CoreConfig config = with_policy("bevy+prefetch-next-gate");
    refused(config, ErrorCode::kUnsupported, "the compute backend guesses 0");
    config.lookahead = 2;
    config.guessed_layers = 1;
    refused(config, ErrorCode::kUnsupported, "the compute backend guesses 1");
    config.guessed_layers = 2;
    EXPECT_TRUE(Core::create(config).has_value());
    config.policy = "prefetch-oracle";
    refused(config, ErrorCode::kUnsupported, "knows the future");
    config.guesses_are_true = true;
    EXPECT_TRUE(Core::create(config).has_value());
    config.policy = "prefetch-transition";
    config.prefetch_reads_max = 0;
    refused(config, ErrorCode::kInvalidArgument, "with 0 reads");
    config.prefetch_reads_max = 1;
    for (uint32_t layers : {0u, 3u}) {
        config.lookahead = layers;
        refused(config, ErrorCode::kInvalidArgument, "layers ahead");
    }
    config.policy = "bevy";  // does not look ahead at all
    EXPECT_TRUE(Core::create(config).has_value());
    config.read_order = "alphabetical";
    refused(config, ErrorCode::kUnsupported, "unknown read order 'alphabetical'");
}

}  // namespace
}  // namespace bevy
