#include "engine/route_recorder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "engine/engine.h"
#include "engine/test_doubles.h"

namespace bevy {
namespace {

class RouteRecorderTest : public testing::Test {
protected:
    ~RouteRecorderTest() override { std::filesystem::remove(path_); }

    static constexpr RouteRecorder::Shape kShape = {.layers = InstantCompute::kLayers,
                                                    .experts = InstantCompute::kExperts,
                                                    .top_k = InstantCompute::kUsed};
    const std::string path_ = (std::filesystem::path(testing::TempDir()) /
                               ("bevy-routes-" + std::to_string(getpid()) + ".rtrace"))
                                  .string();
};

TEST_F(RouteRecorderTest, WritesTheTokensThatWentThroughAllLayers) {
    auto recorder = std::move(RouteRecorder::open(path_, kShape).value());
    const std::vector<RoutedExpert> chosen = {{ExpertIndex(2), 1}, {ExpertIndex(0), 1}};
    const std::vector<RoutedExpert> other = {{ExpertIndex(1), 1}, {ExpertIndex(3), 1}};
    recorder->route(RequestId(5), LayerIndex(0), chosen);
    recorder->route(RequestId(6), LayerIndex(0), other);
    recorder->route(RequestId(5), LayerIndex(1), other);
    recorder->route(RequestId(5), LayerIndex(0), other);
    recorder->finished(RequestId(6));  // in the middle of its first token
    recorder->finished(RequestId(5));
    recorder->finished(RequestId(7));  // never routed
    ASSERT_TRUE(recorder->close());
    const Result<RouteTrace> trace = read_route_trace(path_);
    ASSERT_TRUE(trace) << trace.error().text();
    ASSERT_EQ(trace->requests.size(), 1u);
    EXPECT_EQ(trace->requests[0].tokens, 1u);
    EXPECT_EQ(trace->requests[0].bytes, (std::vector<uint8_t>{2, 0, 1, 3}));
}

TEST_F(RouteRecorderTest, RefusesMoreExpertsThanTheFileHolds) {
    const auto recorder = RouteRecorder::open(path_, {.layers = 2, .experts = 257, .top_k = 2});
    ASSERT_FALSE(recorder);
    EXPECT_EQ(recorder.error().code, ErrorCode::kUnsupported);
    EXPECT_TRUE(recorder.error().message.contains("257")) << recorder.error().message;
}

TEST_F(RouteRecorderTest, RefusesAFileThatCanNotBeWritten) {
    const auto recorder = RouteRecorder::open(testing::TempDir() + "/none/t.rtrace", kShape);
    ASSERT_FALSE(recorder);
    EXPECT_EQ(recorder.error().code, ErrorCode::kIo);
    EXPECT_TRUE(recorder.error().message.contains("none/t.rtrace")) << recorder.error().message;
}

TEST_F(RouteRecorderTest, SaysWhenThereWasNothingToRecord) {
    auto recorder = std::move(RouteRecorder::open(path_, kShape).value());
    const Status status = recorder->close();
    ASSERT_FALSE(status);
    EXPECT_TRUE(status.error().message.contains(path_)) << status.error().message;
}

TEST_F(RouteRecorderTest, TheEngineRecordsEveryGeneratedTokenButTheLast) {
    SystemClock clock;
    InstantLink link;
    InstantCompute compute;
    auto recorder = std::move(RouteRecorder::open(path_, kShape).value());
    auto engine = std::move(
        Engine::create({.core = small_core(), .context_per_sequence = 32, .vocabulary = 10}, link,
                       compute, clock, nullptr, recorder.get())
            .value());
    RecordingSink sinks[2];
    const uint32_t replies[2] = {5, 1};
    for (int i = 0; i < 2; i++) {
        ASSERT_TRUE(engine->submit({.prompt = std::vector<TokenId>(9, 3),
                                    .max_tokens = replies[i],
                                    .sampler = std::make_unique<FixedSampler>(),
                                    .sink = &sinks[i]}));
    }
    for (int turns = 0; turns < 10'000 && !(sinks[0].reason && sinks[1].reason); turns++)
        engine->step();
    engine->stop();
    while (!engine->done())
        engine->step();
    ASSERT_TRUE(recorder->close());
    const Result<RouteTrace> trace = read_route_trace(path_);
    ASSERT_TRUE(trace) << trace.error().text();
    ASSERT_EQ(trace->requests.size(), 1u);
    EXPECT_EQ(trace->requests[0].tokens, 4u);
    EXPECT_EQ(trace->requests[0].bytes,
              (std::vector<uint8_t>{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1}));
}

}  // namespace
}  // namespace bevy
