#include "sim/experiment.h"

#include <gtest/gtest.h>

#include "core/eviction/registry.h"
#include "sim/generated_routes.h"
#include "sim/known_future_eviction.h"

namespace bevy {
namespace {

constexpr uint32_t kLayers = 4;
constexpr uint32_t kExperts = 16;

const RouteTrace& small_trace() {
    static const RouteTrace trace = generate_routes({.layers = kLayers,
                                                     .experts = kExperts,
                                                     .top_k = 2,
                                                     .statistics = {1000, 1000, 1000, 500},
                                                     .requests = 20,
                                                     .tokens_min = 20,
                                                     .tokens_max = 60});
    return trace;
}

// A read takes about as long as what a token computes.
ExperimentOptions small_options() {
    ExperimentOptions options;
    options.hardware = {.link_bytes_per_second = 1'000'000'000,
                        .link_latency = microseconds(20),
                        .memory_bytes_per_second = 20'000'000'000,
                        .launch = microseconds(20),
                        .pair = microseconds(5),
                        .layer = microseconds(10),
                        .head = microseconds(50)};
    options.model = {.name = "small",
                     .layers = kLayers,
                     .experts = kExperts,
                     .top_k = 2,
                     .expert_bytes = 1'000'000,
                     .layer_bytes = 2'000'000,
                     .head_bytes = 10'000'000};
    options.slots = kLayers * kExperts / 2;
    options.parallel = 4;
    options.tokens_warmup = 200;
    options.tokens_measured = 800;
    return options;
}

ExperimentResult run(const ExperimentOptions& options) {
    Result<ExperimentResult> result = run_experiment(options, small_trace());
    if (!result) {
        ADD_FAILURE() << result.error().text();
        return {};
    }
    return *result;
}

TEST(Experiment, TheSameOptionsGiveTheSameResult) {
    const ExperimentResult first = run(small_options());
    const ExperimentResult second = run(small_options());
    EXPECT_EQ(first.hash, second.hash);
    EXPECT_EQ(first.window, second.window);
    EXPECT_EQ(first.stats.core.reads_started, second.stats.core.reads_started);
    ExperimentOptions other = small_options();
    other.seed = 2;
    EXPECT_NE(run(other).hash, first.hash);
}

TEST(Experiment, WhatIsMeasuredFitsTogether) {
    for (const char* policy : {"bevy", "lockstep"}) {
        ExperimentOptions options = small_options();
        options.core.policy = policy;
        const ExperimentResult result = run(options);
        // All tokens of the moment in which the window ends are in it.
        EXPECT_GE(result.tokens, options.tokens_measured);
        EXPECT_LE(result.tokens, options.tokens_measured + options.parallel);
        EXPECT_GT(result.tokens_per_second(), 0);
        const CoreStats& core = result.stats.core;
        // Two experts at each layer of every token, give or take a token per request.
        EXPECT_NEAR(static_cast<double>(core.expert_hits + core.expert_joins + core.expert_misses),
                    static_cast<double>(result.tokens * kLayers * 2),
                    2.0 * options.parallel * kLayers * 2);
        EXPECT_LE(core.reads_started, core.expert_misses + options.parallel);
        EXPECT_GT(result.reads_per_token(), 0);
        EXPECT_NEAR(result.link_busy.seconds(),
                    static_cast<double>(core.reads_started) * result.transfer.seconds(),
                    4 * result.transfer.seconds());
        EXPECT_GT(result.link_utilisation(), 0);
        EXPECT_LE(result.link_utilisation(), 1);
        EXPECT_GT(result.compute_utilisation(), 0);
        EXPECT_LE(result.compute_utilisation() + result.stall_share(), 1.0001);
        EXPECT_LE(result.token_latency_p50, result.token_latency_p99);
        EXPECT_LT(result.fairness_spread, 0.1);
        EXPECT_EQ(result.requests_refused, 0u);
    }
}

TEST(Experiment, WithEverythingInMemoryLockstepDoesTheLeastThereIsToDo) {
    ExperimentOptions options = small_options();
    options.core.policy = "lockstep";
    options.slots = kLayers * kExperts;
    options.tokens_warmup = 600;
    const ExperimentResult result = run(options);
    EXPECT_LE(result.stats.core.reads_started, 2u);  // of experts that nobody wanted before
    EXPECT_NEAR(result.stats.hit_rate(), 1, 0.001);
    EXPECT_NEAR(result.tokens_per_second() * result.merged_compute_per_token.seconds(), 1, 0.01);
    EXPECT_NEAR(bound_tokens_per_second(result, result) / result.tokens_per_second(), 1, 0.01);
    EXPECT_EQ(result.fairness_spread, 0);
}

TEST(Experiment, NoPolicyBeatsTheBound) {
    ExperimentOptions options = small_options();
    options.core.policy = "lockstep";
    const ExperimentResult lockstep = run(options);
    options.core.policy = "bevy";
    const ExperimentResult bevy = run(options);
    const double bound = bound_tokens_per_second(bevy, lockstep);
    EXPECT_LT(bevy.tokens_per_second(), bound * 1.05);
    EXPECT_GT(bevy.tokens_per_second(), lockstep.tokens_per_second());
}

TEST(Experiment, PromptsAreComputedButNotCounted) {
    ExperimentOptions options = small_options();
    options.prompt_tokens = 15;
    const ExperimentResult result = run(options);
    EXPECT_GT(result.stats.tokens_prompt, result.stats.tokens_generated / 5);
    EXPECT_GT(result.prefill_p50, result.token_latency_p50);
    options.prompt_tokens = 1000;  // longer than any request: each generates one token
    options.tokens_warmup = 20;
    options.tokens_measured = 40;
    EXPECT_GE(run(options).stats.core.requests_finished, 35u);
}

TEST(Experiment, RequestsCanBeCutShort) {
    ExperimentOptions options = small_options();
    options.request_tokens_max = 8;
    const ExperimentResult result = run(options);
    EXPECT_NEAR(static_cast<double>(result.stats.core.requests_finished),
                static_cast<double>(result.tokens) / 8, 4);
}

TEST(Experiment, SparseArrivalsBoundTheThroughput) {
    ExperimentOptions options = small_options();
    options.request_tokens_max = 10;
    options.arrival_gap = milliseconds(1000);
    options.tokens_measured = 4000;
    const ExperimentResult result = run(options);
    // 400 arrivals, with a standard deviation of 5 %.
    EXPECT_NEAR(result.tokens_per_second(), 10, 2);
    EXPECT_EQ(result.queued_p50, Duration{0});
    EXPECT_LT(result.stats.group_size_mean(), 1.2);
    EXPECT_EQ(result.fairness_spread, 0);
}

TEST(Experiment, TooManyArrivalsWait) {
    ExperimentOptions options = small_options();
    options.arrival_gap = microseconds(100);
    const ExperimentResult result = run(options);
    EXPECT_GT(result.queued_p50, milliseconds(100));
    EXPECT_GT(result.stats.group_size_mean(), 1.2);
}

TEST(Experiment, EndsWhenItIsAskedTo) {
    ExperimentOptions options = small_options();
    options.tokens_measured = 1'000'000'000;
    int questions = 0;
    options.keep_going = [&] { return ++questions < 3; };
    const Result<ExperimentResult> result = run_experiment(options, small_trace());
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kCancelled);
}

TEST(Experiment, WhatCanNotWorkIsRefused) {
    ExperimentOptions options = small_options();
    options.slots = 1;
    Result<ExperimentResult> result = run_experiment(options, small_trace());
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kBudget);
    options = small_options();
    options.model.experts = 32;
    result = run_experiment(options, small_trace());
    ASSERT_FALSE(result);
    EXPECT_TRUE(result.error().message.contains("32")) << result.error().message;
    options = small_options();
    options.drop_tokens = 1000;
    EXPECT_FALSE(run_experiment(options, small_trace()));
}

TEST(Experiment, NoEvictionMissesLessThanOneThatKnowsTheFuture) {
    for (const char* policy : {"lockstep", "bevy"}) {
        ExperimentOptions options = small_options();
        options.core.policy = policy;
        options.core.eviction = kKnownFutureEviction;
        const double bound = run(options).misses_per_token();
        EXPECT_GT(bound, 0);
        for (const EvictionRow& row : eviction_policies()) {
            options.core.eviction = row.name;
            EXPECT_LT(bound, run(options).misses_per_token()) << policy << ", " << row.name;
        }
    }
}

}  // namespace
}  // namespace bevy
