#include "sim/replay_compute.h"

#include <gtest/gtest.h>

namespace bevy {
namespace {

constexpr uint32_t kLayers = 2;

// Token t of the only request uses experts t and t + 1 of 16, the higher one first.
RouteTrace small_trace() {
    RouteTrace trace{.layers = kLayers, .experts = 16, .top_k = 2};
    RouteTrace::Request request{.tokens = 8};
    for (uint8_t token = 0; token < request.tokens; token++) {
        for (uint32_t layer = 0; layer < kLayers; layer++) {
            request.bytes.push_back(token + 1);
            request.bytes.push_back(token);
        }
    }
    trace.requests.push_back(std::move(request));
    return trace;
}

// A byte takes a nanosecond on the memory, ten on the link.
HardwareProfile small_hardware() {
    return {.link_bytes_per_second = 100'000'000,
            .memory_bytes_per_second = 1'000'000'000,
            .launch = {10},
            .pair = {100},
            .layer = {1000},
            .head = {5000}};
}

ModelProfile small_model() {
    return {.layers = kLayers,
            .experts = 16,
            .top_k = 2,
            .expert_bytes = 10'000,
            .layer_bytes = 200'000,
            .entry_bytes = 50'000,
            .head_bytes = 3'000'000};
}

class ReplayComputeTest : public testing::Test {
protected:
    explicit ReplayComputeTest(uint32_t contention_per_mille = 0)
        : trace_(small_trace()),
          source_(RouteSource::create(trace_, {}).value()),
          costs_(small_hardware(), small_model()),
          memory_(4, log_),
          link_({.bytes_per_transfer = 10'000,
                 .bytes_per_second = 100'000'000,
                 .latency = {},
                 .jitter = {}},
                1, clock_, memory_, log_),
          compute_({.sequences = 2, .memory_contention_per_mille = contention_per_mille}, source_,
                   costs_, clock_, link_, log_) {}

    StepResult run(ComputeStep step) {
        compute_.start(std::move(step));
        while (true) {
            if (std::optional<StepResult> result = compute_.poll())
                return *result;
            clock_.advance(clock_.now() + milliseconds(1000));
        }
    }
    ComputeStep entry(uint32_t position, uint32_t rows, bool wants_logits = true) {
        return {.stage = 0,
                .advancing = {SeqIndex(1)},
                .passes = {{.seq = SeqIndex(1),
                            .tokens = std::vector<TokenId>(rows, 0),
                            .first_position = position,
                            .wants_logits = wants_logits}}};
    }

    SimClock clock_;
    SimLog log_;
    RouteTrace trace_;
    RouteSource source_;
    StepCosts costs_;
    SimMemory memory_;
    SimLink link_;
    ReplayCompute compute_;
};

std::vector<uint32_t> experts_of(const StepResult& result) {
    std::vector<uint32_t> experts;
    for (const RoutedExpert& routed : result.results.at(0).route)
        experts.push_back(routed.expert.value);
    return experts;
}

TEST_F(ReplayComputeTest, ADecodePassFollowsTheRouteInRouterOrder) {
    run(entry(0, 1));
    const StepResult result = run(entry(1, 1));
    EXPECT_EQ(experts_of(result), (std::vector<uint32_t>{2, 1}));
    EXPECT_EQ(result.finished - result.started, Duration{10 + 1000 + 250'000});
}

TEST_F(ReplayComputeTest, AStepCostsWhatItsPartsCost) {
    run(entry(0, 1));
    const ComputeStep experts = {.stage = 1,
                                 .uses = {{SeqIndex(1), ExpertIndex(0), SlotIndex(0)},
                                          {SeqIndex(1), ExpertIndex(1), SlotIndex(1)}}};
    StepResult result = run(experts);
    EXPECT_EQ(result.finished - result.started, Duration{10 + 2 * 100 + 2 * 10'000});
    result = run({.stage = 1, .advancing = {SeqIndex(1)}});
    EXPECT_EQ(result.finished - result.started, Duration{10 + 1000 + 200'000});
    EXPECT_EQ(experts_of(result), (std::vector<uint32_t>{1, 0}));
    result = run({.stage = 2,
                  .uses = {{SeqIndex(1), ExpertIndex(0), SlotIndex(0)}},
                  .advancing = {SeqIndex(1)}});
    EXPECT_EQ(result.finished - result.started, Duration{10 + 100 + 5000 + 10'000 + 3'000'000});
    EXPECT_TRUE(result.results.at(0).route.empty());
}

TEST_F(ReplayComputeTest, AChunkNamesItsExpertsOnceWithTheirRows) {
    const StepResult result = run(entry(0, 3, false));
    EXPECT_EQ(experts_of(result), (std::vector<uint32_t>{0, 1, 2, 3}));
    const std::vector<RoutedExpert>& route = result.results[0].route;
    EXPECT_EQ(route[0].rows, 1u);
    EXPECT_EQ(route[1].rows, 2u);
    EXPECT_EQ(route[3].rows, 1u);
    EXPECT_EQ(result.finished - result.started, Duration{10 + 3 * 1000 + 250'000});
    // Two of its rows chose expert 1. It ends with the last layer, since it wants no logits.
    const StepResult experts = run({.stage = 1,
                                    .uses = {{SeqIndex(1), ExpertIndex(1), SlotIndex(0)}},
                                    .advancing = {SeqIndex(1)}});
    EXPECT_EQ(experts.finished - experts.started,
              Duration{10 + 2 * 100 + 3 * 1000 + 10'000 + 200'000});
    EXPECT_TRUE(experts.results[0].route.empty());
}

TEST_F(ReplayComputeTest, TheFutureIsWhatWillBeRouted) {
    EXPECT_TRUE(compute_.future_route(SeqIndex(1), 0, LayerIndex(0)).empty());
    run(entry(0, 3, false));
    EXPECT_EQ(compute_.future_route(SeqIndex(1), 0, LayerIndex(1))[0], 3);
    EXPECT_EQ(compute_.future_route(SeqIndex(1), 2, LayerIndex(0))[0], 5);
    EXPECT_EQ(compute_.future_route(SeqIndex(1), 5, LayerIndex(1))[0], 8);
    EXPECT_TRUE(compute_.future_route(SeqIndex(1), 6, LayerIndex(1)).empty());
    EXPECT_TRUE(compute_.future_route(SeqIndex(0), 0, LayerIndex(0)).empty());
}

TEST_F(ReplayComputeTest, WithoutContentionTheLinkDoesNotMatter) {
    link_.start(Ticket(0), ExpertId(0), SlotIndex(0));
    const StepResult result = run(entry(0, 1));
    EXPECT_EQ(result.finished - result.started, Duration{251'010});
}

class ContendedReplayComputeTest : public ReplayComputeTest {
protected:
    ContendedReplayComputeTest() : ReplayComputeTest(500) {}
};

// The memory's part of the step is 250000 of 251010 ns; a busy link takes half of that.
TEST_F(ContendedReplayComputeTest, AStepIsSlowerWhileTheLinkIsBusy) {
    link_.start(Ticket(0), ExpertId(0), SlotIndex(0));  // until 100000
    const StepResult result = run(entry(0, 1));
    EXPECT_NEAR(static_cast<double>((result.finished - result.started).ns), 251'010 + 49'800, 5);
}

TEST_F(ContendedReplayComputeTest, ALinkThatOutlastsTheStepSlowsAllOfIt) {
    run(entry(0, 1));
    for (uint32_t i = 0; i < 4; i++)
        link_.start(Ticket(i), ExpertId(i), SlotIndex(i));  // for 400000
    const StepResult result = run({.stage = 1,
                                   .uses = {{SeqIndex(1), ExpertIndex(0), SlotIndex(0)},
                                            {SeqIndex(1), ExpertIndex(1), SlotIndex(1)}}});
    // 20000 of 20210 ns are the memory's.
    EXPECT_NEAR(static_cast<double>((result.finished - result.started).ns), 40'004, 2);
}

TEST_F(ContendedReplayComputeTest, ATransferThatStartsInTheMiddleCountsFromThen) {
    clock_.after({200'000}, [this] { link_.start(Ticket(0), ExpertId(0), SlotIndex(0)); });
    const StepResult result = run(entry(0, 1));
    // 51010 ns of work are left at 200000; the transfer leaves 50201 for it, and the rest follows.
    EXPECT_NEAR(static_cast<double>((result.finished - result.started).ns), 300'000 + 809, 5);
}

}  // namespace
}  // namespace bevy
