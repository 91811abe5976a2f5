#include "cli/bench_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace bevy {
namespace {

BenchResult result_of(double seconds, std::vector<std::vector<TokenId>> outputs) {
    BenchResult result;
    result.slots = 96;
    result.experts = 192;
    result.tokens = 100;
    result.window = Duration{static_cast<int64_t>(seconds * 1e9)};
    result.stats.wall = result.window;
    result.stats.active = result.window;
    result.stats.core.compute_busy = Duration{result.window.ns / 4};
    result.stats.link_bytes = 1'000'000'000;
    result.link_bytes_per_second = 1e9;
    result.outputs = std::move(outputs);
    return result;
}

BenchSweep two_settings() {
    BenchSweep sweep;
    sweep.settings.push_back({"bevy", "reuse", 2, {}, {result_of(2, {{1, 2, 3}, {7}})}});
    sweep.settings.push_back({"lockstep", "reuse", 2, {}, {result_of(4, {{1, 2}, {7, 8}})}});
    return sweep;
}

TEST(BenchReport, TheBoundIsWhateverTakesLongest) {
    // One second of reads and half a second of steps in two.
    EXPECT_DOUBLE_EQ(result_of(2, {}).of_bound(), 0.5);
    BenchResult computing = result_of(2, {});
    computing.stats.core.compute_busy = computing.window;
    EXPECT_DOUBLE_EQ(computing.of_bound(), 1.0);
}

TEST(BenchReport, OutputsMustAgreeAsFarAsBothReach) {
    BenchSweep sweep = two_settings();
    EXPECT_FALSE(different_outputs(sweep));
    // Longer than the first, and other than the second there.
    sweep.settings.push_back({"fifo", "reuse", 2, {}, {result_of(4, {{1, 2, 3}, {7, 9}})}});
    const std::optional<std::string> different = different_outputs(sweep);
    ASSERT_TRUE(different);
    EXPECT_TRUE(different->contains("request 2 with policy fifo")) << *different;
}

TEST(BenchReport, TablesTakeTheMedianAndShowTheSpread) {
    BenchSweep sweep = two_settings();
    sweep.settings[0].results = {result_of(1, {}), result_of(4, {}), result_of(2, {})};
    const std::string table = bench_markdown(sweep);
    EXPECT_TRUE(table.contains("50 (25 - 100)")) << table;
    EXPECT_EQ(std::ranges::count(table, '\n'), 4);
    // What was interrupted before its first repetition is left out.
    sweep.settings[1].results.clear();
    EXPECT_EQ(std::ranges::count(bench_markdown(sweep), '\n'), 3);
    sweep.settings[0].results.clear();
    EXPECT_EQ(bench_markdown(sweep), "");
    EXPECT_EQ(bench_csv(sweep), "");
    EXPECT_EQ(nlohmann::json::parse(bench_json(sweep)).size(), 0u);
}

TEST(BenchReport, AllFormatsSayTheSame) {
    const BenchSweep sweep = two_settings();
    const auto json = nlohmann::json::parse(bench_json(sweep));
    ASSERT_EQ(json.size(), 2u);
    EXPECT_EQ(json[1]["policy"], "lockstep");
    EXPECT_DOUBLE_EQ(json[1]["tokens_per_second"].get<double>(), 25);
    const std::string lines = bench_jsonl(sweep);
    EXPECT_EQ(nlohmann::json::parse(lines.substr(0, lines.find('\n'))), json[0]);
    EXPECT_EQ(std::ranges::count(bench_csv(sweep), '\n'), 3);
    EXPECT_TRUE(bench_plot(sweep).contains("lockstep"));
}

}  // namespace
}  // namespace bevy
