#include "engine/engine.h"

#include <gtest/gtest.h>

#include <string>

#include "engine/test_doubles.h"

namespace bevy {
namespace {

class EngineTest : public testing::Test {
protected:
    EngineTest() { make({.core = small_core(), .context_per_sequence = 16, .vocabulary = 10}); }
    ~EngineTest() override { end(); }

    void make(const EngineConfig& config) {
        end();
        auto made = Engine::create(config, link_, compute_, clock_);
        ASSERT_TRUE(made) << made.error().text();
        engine_ = std::move(*made);
    }
    void end() {
        if (!engine_)
            return;
        engine_->stop();
        while (!engine_->done())
            engine_->step();
        engine_.reset();
    }
    Result<RequestId> submit(RecordingSink& sink, uint32_t prompt, uint32_t max_tokens) {
        return engine_->submit({.prompt = std::vector<TokenId>(prompt, 3),
                                .max_tokens = max_tokens,
                                .sampler = std::make_unique<FixedSampler>(),
                                .sink = &sink});
    }
    void run(RecordingSink& sink) {
        for (int turns = 0; !sink.reason && turns < 10'000; turns++)
            engine_->step();
        ASSERT_TRUE(sink.reason);
    }

    SystemClock clock_;
    InstantLink link_;
    InstantCompute compute_;
    std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, GeneratesUntilMaxTokens) {
    RecordingSink sink;
    ASSERT_TRUE(submit(sink, 6, 5));
    run(sink);
    EXPECT_EQ(sink.reason, FinishReason::kLength);
    EXPECT_EQ(sink.tokens, std::vector<TokenId>(5, 1));
    EXPECT_EQ(sink.timings.tokens_prompt, 6u);
    EXPECT_EQ(sink.timings.tokens_generated, 5u);
    EXPECT_FALSE(sink.error);
    const EngineStats stats = engine_->snapshot().stats;
    EXPECT_EQ(stats.tokens_prompt, 6u);
    EXPECT_EQ(stats.tokens_generated, 5u);
    EXPECT_EQ(stats.link_bytes, 100 * stats.core.reads_started);
    EXPECT_EQ(stats.core.reads_started, 4u);  // two experts in each of two layers
}

TEST_F(EngineTest, ReusesTheBeginningOfAPrompt) {
    auto request = [](RecordingSink& sink, uint32_t prompt) {
        return GenerationRequest{.prompt = std::vector<TokenId>(prompt, 3),
                                 .max_tokens = 2,
                                 .sampler = std::make_unique<FixedSampler>(),
                                 .sink = &sink,
                                 .reuse_prompt = true};
    };
    RecordingSink first;
    ASSERT_TRUE(engine_->submit(request(first, 9)));
    run(first);
    EXPECT_EQ(first.timings.tokens_reused, 0u);
    RecordingSink second;
    ASSERT_TRUE(engine_->submit(request(second, 11)));
    run(second);
    EXPECT_EQ(second.timings.tokens_prompt, 11u);
    EXPECT_EQ(second.timings.tokens_reused, 8u);
    const EngineStats stats = engine_->snapshot().stats;
    EXPECT_EQ(stats.tokens_prompt, 9u + 3u);
    EXPECT_EQ(stats.tokens_reused, 8u);
}

TEST_F(EngineTest, AFullContextEndsTheReply) {
    RecordingSink sink;
    ASSERT_TRUE(submit(sink, 10, UINT32_MAX));
    run(sink);
    EXPECT_EQ(sink.reason, FinishReason::kLength);
    EXPECT_EQ(sink.tokens.size(), 6u);
}

TEST_F(EngineTest, TheSinkMayStop) {
    RecordingSink sink;
    sink.wanted = 2;
    ASSERT_TRUE(submit(sink, 1, 9));
    run(sink);
    EXPECT_EQ(sink.reason, FinishReason::kStop);
    EXPECT_EQ(sink.tokens.size(), 2u);
}

TEST_F(EngineTest, WhatCannotBeServedIsRefusedWithTheNumbers) {
    RecordingSink sink;
    EXPECT_EQ(submit(sink, 0, 1).error().code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(submit(sink, 1, 0).error().code, ErrorCode::kInvalidArgument);
    const Error long_prompt = submit(sink, 16, 1).error();
    EXPECT_EQ(long_prompt.code, ErrorCode::kBudget);
    EXPECT_TRUE(long_prompt.message.contains("16 tokens")) << long_prompt.message;
    EXPECT_TRUE(long_prompt.message.contains("room for 15")) << long_prompt.message;
    for (TokenId token : {-1, 10}) {
        const auto refused = engine_->submit({.prompt = {token},
                                              .max_tokens = 1,
                                              .sampler = std::make_unique<FixedSampler>(),
                                              .sink = &sink});
        ASSERT_FALSE(refused);
        EXPECT_TRUE(refused.error().message.contains(std::to_string(token)));
    }
    link_.wake();  // there is nothing to do, and no need to sleep over it
    engine_->step();
    EXPECT_EQ(sink.finishes, 0);
}

TEST_F(EngineTest, AFullQueueSaysSo) {
    make({.core = small_core(), .context_per_sequence = 16, .vocabulary = 10, .mailbox_max = 2});
    RecordingSink sinks[3];
    EXPECT_TRUE(submit(sinks[0], 1, 1));
    EXPECT_TRUE(submit(sinks[1], 1, 1));
    const auto refused = submit(sinks[2], 1, 1);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kQueueFull);
    EXPECT_FALSE(refused.error().hint.empty());
    run(sinks[0]);
    run(sinks[1]);
    EXPECT_TRUE(submit(sinks[2], 1, 1));
}

TEST_F(EngineTest, AFailedStepEndsWhatRunsAndTheEngineGoesOn) {
    RecordingSink first;
    RecordingSink second;
    ASSERT_TRUE(submit(first, 3, 4));
    ASSERT_TRUE(submit(second, 3, 4));
    compute_.fail_next = true;
    run(first);
    run(second);
    for (const RecordingSink* sink : {&first, &second}) {
        EXPECT_EQ(sink->reason, FinishReason::kError);
        ASSERT_TRUE(sink->error);
        EXPECT_EQ(sink->error->message, "the backend is on fire");
        EXPECT_EQ(sink->finishes, 1);
    }
    EXPECT_EQ(engine_->snapshot().stats.steps_failed, 1u);
    RecordingSink third;
    ASSERT_TRUE(submit(third, 3, 4));
    run(third);
    EXPECT_EQ(third.reason, FinishReason::kLength);
}

TEST_F(EngineTest, AnUnreadableExpertEndsTheRequestWithItsCause) {
    link_.broken_expert = ExpertId(InstantCompute::kExperts + 1);
    RecordingSink sink;
    ASSERT_TRUE(submit(sink, 1, 4));
    run(sink);
    EXPECT_EQ(sink.reason, FinishReason::kError);
    ASSERT_TRUE(sink.error);
    EXPECT_EQ(sink.error->message, "sector 7 is unreadable");
    EXPECT_EQ(sink.error->hint, "replace the disk");
    // The error is not remembered against the expert.
    link_.broken_expert.reset();
    RecordingSink again;
    ASSERT_TRUE(submit(again, 1, 4));
    run(again);
    EXPECT_EQ(again.reason, FinishReason::kLength);
}

TEST_F(EngineTest, AnUnreadableGuessEndsNobody) {
    EngineConfig config{.core = small_core(), .context_per_sequence = 16, .vocabulary = 10};
    config.core.policy = "bevy+prefetch-next-gate";
    config.core.guessed_layers = 1;
    make(config);
    // Expected at the second layer, and chosen by nobody.
    compute_.guesses = {ExpertIndex(2), ExpertIndex(3)};
    link_.broken_expert = ExpertId(InstantCompute::kExperts + 2);
    RecordingSink sink;
    ASSERT_TRUE(submit(sink, 1, 9));
    run(sink);
    EXPECT_EQ(sink.reason, FinishReason::kLength);
    EXPECT_EQ(sink.tokens.size(), 9u);
    const CoreStats stats = engine_->snapshot().stats.core;
    EXPECT_EQ(stats.reads_failed, 1u);  // and not tried again
    EXPECT_EQ(stats.prefetches, 2u);
    EXPECT_EQ(stats.prefetches_useful, 0u);
    EXPECT_EQ(stats.requests_failed, 0u);
    // Of nine tokens, one was guessed before the other expert had been read.
    EXPECT_EQ(stats.guesses, 18u);
    EXPECT_EQ(stats.guesses_absent, 10u);
    EXPECT_EQ(stats.guesses_right, 0u);
    EXPECT_EQ(stats.guesses_absent_right, 0u);
}

TEST_F(EngineTest, RightGuessesAreCountedByWhetherTheirExpertWasThere) {
    EngineConfig config{.core = small_core(), .context_per_sequence = 16, .vocabulary = 10};
    config.core.policy = "bevy+prefetch-next-gate";
    config.core.guessed_layers = 1;
    make(config);
    compute_.guesses = {ExpertIndex(1), ExpertIndex(3)};  // 0 and 1 are chosen
    RecordingSink sink;
    ASSERT_TRUE(submit(sink, 1, 5));
    run(sink);
    const CoreStats stats = engine_->snapshot().stats.core;
    EXPECT_EQ(stats.guesses, 10u);
    EXPECT_EQ(stats.guesses_right, 5u);
    EXPECT_GE(stats.guesses_absent, 2u);
    EXPECT_EQ(stats.guesses_absent_right, 1u);  // at the first token
}

TEST_F(EngineTest, GuessesThatNobodyMakesAreRefused) {
    EngineConfig config{.core = small_core(), .context_per_sequence = 16, .vocabulary = 10};
    for (const char* policy : {"prefetch-next-gate", "bevy+prefetch-oracle"}) {
        config.core.policy = policy;
        const auto refused = Engine::create(config, link_, compute_, clock_);
        ASSERT_FALSE(refused) << policy;
        EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    }
}

TEST_F(EngineTest, ARequestCanBeCancelledWhereverItIs) {
    RecordingSink sinks[10];
    std::vector<RequestId> ids;
    for (RecordingSink& sink : sinks)
        ids.push_back(submit(sink, 1, 15).value());
    EXPECT_TRUE(engine_->cancel(ids[9]));  // in the mailbox, nothing was taken yet
    for (int turns = 0; turns < 6; turns++)
        engine_->step();
    EXPECT_EQ(sinks[9].reason, FinishReason::kCancelled);
    EXPECT_TRUE(engine_->cancel(ids[0]));  // running
    EXPECT_TRUE(engine_->cancel(ids[6]));  // queued in the core
    EXPECT_TRUE(engine_->cancel(ids[6]));
    engine_->step();
    EXPECT_EQ(sinks[0].reason, FinishReason::kCancelled);
    EXPECT_EQ(sinks[6].reason, FinishReason::kCancelled);
    EXPECT_TRUE(sinks[6].tokens.empty());
    EXPECT_FALSE(engine_->cancel(ids[0]));
    EXPECT_FALSE(engine_->cancel(RequestId(1234)));
    for (int i : {1, 2, 3, 4, 5, 7, 8}) {
        run(sinks[i]);
        EXPECT_EQ(sinks[i].reason, FinishReason::kLength);
    }
    for (const RecordingSink& sink : sinks)
        EXPECT_EQ(sink.finishes, 1);
}

TEST_F(EngineTest, OneTokenPerTurnButGroupsStayTogetherAndNobodySleeps) {
    RecordingSink sinks[4];
    for (RecordingSink& sink : sinks)
        ASSERT_TRUE(submit(sink, 1, 8));
    size_t before = 0;
    for (int turns = 0; !sinks[3].reason && turns < 1000; turns++) {
        engine_->step();
        size_t tokens = 0;
        for (const RecordingSink& sink : sinks)
            tokens += sink.tokens.size();
        EXPECT_LE(tokens, before + 1);
        before = tokens;
    }
    EXPECT_EQ(compute_.decode_groups, std::vector<uint32_t>(8, 4));
    EXPECT_EQ(link_.waits, 0u);
    const EngineStats stats = engine_->snapshot().stats;
    EXPECT_DOUBLE_EQ(stats.group_size_mean(), 4);
    EXPECT_EQ(stats.group_sizes[4], stats.core.steps);
}

TEST_F(EngineTest, TheSnapshotTellsWhatEveryRequestDoes) {
    RecordingSink sinks[6];
    std::vector<RequestId> ids;
    for (RecordingSink& sink : sinks)
        ids.push_back(submit(sink, 5, 8).value());
    engine_->step();
    const EngineSnapshot snapshot = engine_->snapshot();
    ASSERT_EQ(snapshot.requests.size(), 4u);  // the core's queue holds four
    EXPECT_EQ(snapshot.requests[0].request, ids[0]);
    EXPECT_EQ(snapshot.requests[0].phase, RequestPhase::kComputing);
    EXPECT_EQ(snapshot.requests[0].tokens_prompt, 5u);
    EXPECT_TRUE(snapshot.requests[0].prefill);
    EXPECT_EQ(snapshot.requests[1].phase, RequestPhase::kReady);  // there is one prefill lane
    end();
    for (const RecordingSink& sink : sinks)
        EXPECT_EQ(sink.reason, FinishReason::kCancelled);
}

TEST_F(EngineTest, AnImpossibleConfigurationIsRefused) {
    EngineConfig config{.core = small_core(), .context_per_sequence = 16, .vocabulary = 10};
    config.core.reads_inflight_max = 5;
    auto refused = Engine::create(config, link_, compute_, clock_);
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().message.contains("5 reads in flight")) << refused.error().message;
    config.core = small_core();
    config.context_per_sequence = 1;
    EXPECT_FALSE(Engine::create(config, link_, compute_, clock_));
    config.context_per_sequence = 16;
    config.core.slots = 1;
    EXPECT_EQ(Engine::create(config, link_, compute_, clock_).error().code, ErrorCode::kBudget);
}

}  // namespace
}  // namespace bevy
