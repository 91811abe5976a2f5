#include "engine/trace_recorder.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace bevy {
namespace {

using nlohmann::json;

std::string temp_path(const char* name) {
    const std::string own = "bevy-" + std::to_string(::getpid()) + "-" + name;
    return (std::filesystem::path(testing::TempDir()) / own).string();
}

json parse(const std::string& path) {
    std::ifstream file(path);
    return json::parse(file);
}

// Without the metadata events, which only name tracks.
std::vector<json> events_of(const json& timeline) {
    std::vector<json> events;
    for (const json& event : timeline["traceEvents"]) {
        if (event["ph"] != "M")
            events.push_back(event);
    }
    return events;
}

TEST(TraceRecorder, WritesWhatPerfettoReads) {
    const std::string path = temp_path("trace.json");
    auto recorder = TraceRecorder::open(path).value();
    recorder->request_arrived(RequestId(7), 12, {1'000});
    recorder->request_span(RequestId(7), "queued", {1'000}, {3'500});
    recorder->read({.ticket = Ticket(2),
                    .expert = ExpertId(41),
                    .layer = LayerIndex(3),
                    .slot = SlotIndex(5),
                    .bytes = 1 << 20,
                    .ok = false,
                    .started = {2'001},
                    .finished = {4'002}});
    recorder->step({.stage = 4,
                    .sequences = 3,
                    .experts = 6,
                    .uses = 9,
                    .started = {5'000},
                    .finished = {6'000}});
    recorder->request_end(RequestId(7), {9'999});
    ASSERT_TRUE(recorder->close());

    const json timeline = parse(path);
    const std::vector<json> events = events_of(timeline);
    ASSERT_EQ(events.size(), 5u);
    EXPECT_EQ(events[0]["ph"], "B");
    EXPECT_EQ(events[0]["name"], "request");
    EXPECT_EQ(events[0]["args"]["prompt_tokens"], 12);
    EXPECT_DOUBLE_EQ(events[1]["dur"].get<double>(), 2.5);
    EXPECT_EQ(events[2]["name"], "expert 41");
    EXPECT_EQ(events[2]["tid"], 2);
    EXPECT_DOUBLE_EQ(events[2]["ts"].get<double>(), 2.001);
    EXPECT_EQ(events[2]["args"]["layer"], 3);
    EXPECT_EQ(events[2]["args"]["bytes"], 1 << 20);
    EXPECT_EQ(events[2]["args"]["ok"], false);
    EXPECT_EQ(events[3]["args"]["experts"], 6);
    EXPECT_EQ(events[4]["ph"], "E");
    // Every track that events lie on has a name.
    for (const json& event : events) {
        EXPECT_TRUE(std::ranges::any_of(timeline["traceEvents"], [&](const json& other) {
            return other.value("name", "") == "thread_name" && other["pid"] == event["pid"] &&
                   other["tid"] == event["tid"];
        })) << event;
    }
}

TEST(TraceRecorder, TheFileIsCompleteJsonAtAnyTime) {
    const std::string path = temp_path("trace_at_any_time.json");
    auto recorder = TraceRecorder::open(path).value();
    EXPECT_TRUE(events_of(parse(path)).empty());
    size_t seen = 0;
    for (int i = 0; i < 5000; i++) {
        recorder->request_span(RequestId(1), "ready", {i * 10}, {i * 10 + 5});
        if (i % 500 == 0) {
            const size_t now = events_of(parse(path)).size();
            EXPECT_GE(now, seen);
            seen = now;
        }
    }
    EXPECT_GT(seen, 0u);  // it was written as it went, not kept
    ASSERT_TRUE(recorder->close());
    EXPECT_EQ(events_of(parse(path)).size(), 5000u);
    EXPECT_TRUE(recorder->close());  // nothing more to say
}

TEST(TraceRecorder, RefusesAPlaceThatItCannotWriteTo) {
    const auto missing = TraceRecorder::open(temp_path("no/such/directory/trace.json"));
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().code, ErrorCode::kIo);
    EXPECT_TRUE(missing.error().message.contains("no/such/directory"));
    const auto device = TraceRecorder::open("/dev/null");
    ASSERT_FALSE(device);
    EXPECT_EQ(device.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace bevy
