// The timeline of a simulated run, faults and cancellations included, as a viewer would read it.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "engine/trace_recorder.h"
#include "sim/swarm.h"

namespace bevy {
namespace {

using nlohmann::json;

struct Span {
    int64_t begin = 0;
    int64_t end = 0;
    std::string name;
};

int64_t nanoseconds(const json& micros) {
    return std::llround(micros.get<double>() * 1000);
}

struct Timeline {
    SwarmReport report;
    std::map<std::pair<std::string, uint64_t>, std::vector<Span>> tracks;  // by process and thread
};

// Pairs begins with ends; what can't be paired is a failure.
Timeline record(const SwarmOptions& options) {
    const std::string name = "bevy-sim-timeline-" + std::to_string(::getpid()) + ".json";
    const std::string path = (std::filesystem::path(testing::TempDir()) / name).string();
    Timeline timeline;
    auto recorder = TraceRecorder::open(path).value();
    timeline.report = run_swarm(options, {.trace = recorder.get()});
    EXPECT_TRUE(recorder->close());

    std::ifstream file(path);
    const json parsed = json::parse(file);
    std::map<int, std::string> processes;
    std::map<std::pair<std::string, uint64_t>, std::vector<Span>> open;
    for (const json& event : parsed["traceEvents"]) {
        if (event.value("name", "") == "process_name")
            processes[event["pid"]] = event["args"]["name"];
        if (event["ph"] == "M")
            continue;
        const std::pair track(processes.at(event["pid"]), event["tid"].get<uint64_t>());
        const int64_t at = nanoseconds(event["ts"]);
        if (event["ph"] == "B") {
            open[track].push_back({at, at, event["name"]});
        } else if (event["ph"] == "E") {
            if (open[track].empty()) {
                ADD_FAILURE() << "an end without a begin on " << track.first << track.second;
                continue;
            }
            open[track].back().end = at;
            timeline.tracks[track].push_back(open[track].back());
            open[track].pop_back();
        } else {
            timeline.tracks[track].push_back({at, at + nanoseconds(event["dur"]), event["name"]});
        }
    }
    for (const auto& [track, spans] : open)
        EXPECT_TRUE(spans.empty()) << "a begin without an end on " << track.first << track.second;
    return timeline;
}

// Any two spans of a track lie within or beside each other.
void expect_nested(const std::vector<Span>& spans) {
    for (const Span& a : spans) {
        EXPECT_LE(a.begin, a.end);
        for (const Span& b : spans) {
            const bool beside = a.end <= b.begin || b.end <= a.begin;
            const bool within =
                (a.begin <= b.begin && b.end <= a.end) || (b.begin <= a.begin && a.end <= b.end);
            EXPECT_TRUE(beside || within) << a.name << " and " << b.name << " cross";
        }
    }
}

void expect_disjoint(const std::vector<Span>& spans) {
    for (size_t i = 1; i < spans.size(); i++)
        EXPECT_LE(spans[i - 1].end, spans[i].begin) << spans[i - 1].name << ", " << spans[i].name;
}

TEST(Timeline, SpansPairNestAndCoverWhatHappened) {
    std::set<std::string> names;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const Timeline timeline = record(draw_swarm(seed));
        EXPECT_TRUE(timeline.report.violations.empty());
        const EngineStats& stats = timeline.report.stats;
        uint64_t requests = 0;
        uint64_t reads = 0;
        for (const auto& [track, spans] : timeline.tracks) {
            if (track.first == "requests") {
                expect_nested(spans);
                requests++;
                for (const Span& span : spans)
                    names.insert(span.name);
            } else {
                expect_disjoint(spans);
            }
            if (track.first == "compute") {
                EXPECT_EQ(spans.size(), stats.core.steps);
            }
            if (track.first == "link")
                reads += spans.size();
        }
        EXPECT_EQ(requests, stats.core.requests_arrived);
        EXPECT_EQ(reads, stats.core.reads_started);
    }
    EXPECT_EQ(names, (std::set<std::string>{"computing", "decode", "prefill", "queued", "ready",
                                            "request", "waiting"}));
}

TEST(Timeline, RecordingChangesNothing) {
    for (uint64_t seed = 1; seed <= 5; seed++)
        EXPECT_EQ(record(draw_swarm(seed)).report.hash, run_swarm(draw_swarm(seed)).hash);
}

}  // namespace
}  // namespace bevy
