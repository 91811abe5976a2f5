#include "engine/engine_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "engine/test_doubles.h"

namespace bevy {
namespace {

class CountingSink final : public TokenSink {
public:
    bool on_token(TokenId) override { return ++tokens, true; }
    void on_finish(FinishReason why, const RequestTimings&, std::optional<Error>) override {
        reason = static_cast<int>(why);
        finishes++;
    }
    bool ended_with(FinishReason why) const { return reason == static_cast<int>(why); }

    std::atomic<uint32_t> tokens = 0;
    std::atomic<int> finishes = 0;
    std::atomic<int> reason = -1;
};

class EngineThreadTest : public testing::Test {
protected:
    void start(uint32_t context, uint32_t mailbox_max) {
        auto started = EngineThread::start({.core = small_core(),
                                            .context_per_sequence = context,
                                            .vocabulary = 10,
                                            .mailbox_max = mailbox_max},
                                           link_, compute_, clock_);
        ASSERT_TRUE(started) << started.error().text();
        engine_ = std::move(*started);
    }
    Result<RequestId> submit(TokenSink& sink, uint32_t max_tokens) {
        return engine_->submit({.prompt = {1, 2, 3},
                                .max_tokens = max_tokens,
                                .sampler = std::make_unique<FixedSampler>(),
                                .sink = &sink});
    }

    SystemClock clock_;
    InstantLink link_;
    InstantCompute compute_;
    std::unique_ptr<EngineThread> engine_;
};

TEST_F(EngineThreadTest, ManyThreadsSubmitAndDrainWaitsForAll) {
    start(64, 100);
    CountingSink sinks[4][20];
    std::vector<std::thread> threads;
    for (auto& row : sinks) {
        threads.emplace_back([&] {
            for (CountingSink& sink : row) {
                const Result<RequestId> id = submit(sink, 10);
                EXPECT_TRUE(id);
                if (id && id->value % 7 == 0)
                    engine_->cancel(*id);
            }
        });
    }
    for (std::thread& thread : threads)
        thread.join();
    engine_->drain();
    uint64_t tokens = 0;
    for (auto& row : sinks) {
        for (CountingSink& sink : row) {
            EXPECT_EQ(sink.finishes, 1);
            EXPECT_TRUE(sink.ended_with(FinishReason::kCancelled) || sink.tokens == 10);
            tokens += sink.tokens;
        }
    }
    const EngineSnapshot snapshot = engine_->snapshot();
    EXPECT_EQ(snapshot.stats.tokens_generated, tokens);
    EXPECT_TRUE(snapshot.requests.empty());
    CountingSink late;
    EXPECT_EQ(submit(late, 1).error().code, ErrorCode::kCancelled);
}

TEST_F(EngineThreadTest, StopCancelsWhatRunsAndWhatWaits) {
    start(1'000'000'000, 100);
    CountingSink sinks[20];
    for (CountingSink& sink : sinks)
        ASSERT_TRUE(submit(sink, 900'000'000));
    while (sinks[0].tokens < 5)
        std::this_thread::yield();
    const EngineSnapshot snapshot = engine_->snapshot();
    EXPECT_FALSE(snapshot.requests.empty());
    EXPECT_GE(snapshot.stats.tokens_generated, 5u);
    engine_->stop();
    engine_->stop();
    for (CountingSink& sink : sinks) {
        EXPECT_EQ(sink.finishes, 1);
        EXPECT_TRUE(sink.ended_with(FinishReason::kCancelled));
    }
}

TEST_F(EngineThreadTest, ASinkMaySubmitAndCancel) {
    start(1'000'000, 100);
    CountingSink inner;
    struct Outer final : TokenSink {
        std::function<RequestId()> submit_inner;
        std::function<void(RequestId)> cancel_inner;
        const CountingSink* inner = nullptr;
        std::optional<RequestId> started;
        std::atomic<bool> ended = false;

        bool on_token(TokenId) override {
            if (started)
                cancel_inner(*started);
            else
                started = submit_inner();
            return !inner->ended_with(FinishReason::kCancelled);
        }
        void on_finish(FinishReason, const RequestTimings&, std::optional<Error>) override {
            ended = true;
        }
    } outer;
    outer.submit_inner = [&] { return submit(inner, 900'000).value(); };
    outer.cancel_inner = [&](RequestId id) { engine_->cancel(id); };
    outer.inner = &inner;
    ASSERT_TRUE(submit(outer, 900'000));
    while (!outer.ended)
        std::this_thread::yield();
    engine_->drain();
    EXPECT_TRUE(outer.ended);
    EXPECT_TRUE(inner.ended_with(FinishReason::kCancelled));
}

TEST_F(EngineThreadTest, AnIdleEngineAnswersAndStops) {
    start(64, 4);
    EXPECT_EQ(engine_->snapshot().stats.tokens_generated, 0u);
    engine_.reset();
}

}  // namespace
}  // namespace bevy
