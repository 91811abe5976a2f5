#include "cli/sim_sweep.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/sim_report.h"
#include "core/config.h"

namespace bevy {
namespace {

// What the command line would give; the error text if it refuses.
std::string parse(std::vector<std::string> arguments, SimOptions& options) {
    CLI::App app;
    declare_sim_options(app, options);
    std::ranges::reverse(arguments);
    try {
        app.parse(arguments);
    } catch (const CLI::ParseError& error) {
        return error.what();
    }
    return {};
}

SimOptions quick_options() {
    SimOptions options;
    options.model = "gpt-oss-20b";
    options.hardware = {"study-p3"};
    options.parallel = {1, 4};
    options.seeds = {1, 2};
    options.tokens = 40;
    options.warmup = 20;
    return options;
}

SimSweep run(const SimOptions& options, uint32_t jobs) {
    SimSweep sweep = plan_sweep(options).value();
    const Status status = run_sweep(sweep, jobs, {});
    EXPECT_TRUE(status) << status.error().text();
    return sweep;
}

TEST(SimOptions, ListsAndRangesAreTakenApart) {
    SimOptions options;
    EXPECT_EQ(parse({"--hardware", "study-p1,study-p3", "--parallel", "1,2,16", "--cache",
                     "12.5%,4GiB", "--seeds", "1-3,7", "--policy", "bevy", "--arrivals",
                     "poisson:2.5", "-o", "json", "-j", "3", "--drop", "5"},
                    options),
              "");
    EXPECT_EQ(options.hardware, (std::vector<std::string>{"study-p1", "study-p3"}));
    EXPECT_EQ(options.parallel, (std::vector<uint32_t>{1, 2, 16}));
    EXPECT_EQ(options.seeds, (std::vector<uint64_t>{1, 2, 3, 7}));
    ASSERT_EQ(options.caches.size(), 2u);
    EXPECT_EQ(options.caches[0].value, 1250u);
    EXPECT_EQ(options.caches[1].value, uint64_t{4} << 30);
    EXPECT_EQ(options.policies, std::vector<std::string>{"bevy"});
    EXPECT_EQ(options.arrivals_per_second, 2.5);
    EXPECT_EQ(options.format, SimFormat::kJson);
    EXPECT_EQ(options.jobs, 3u);
    EXPECT_EQ(options.drop, 5u);
}

TEST(SimOptions, MistakesNameTheValueAndWhatIsAllowed) {
    const std::vector<std::array<std::string, 3>> mistakes = {
        {"--parallel", "0", "1 .. 1024"},
        {"--parallel", "1,,2", "''"},
        {"--parallel", "two", "'two'"},
        {"--cache", "rest", "no rest"},
        {"--cache", "0%", "share"},
        {"--seeds", "4-2", "'2'"},
        {"--seeds", "0-999999999", "whole"},
        {"--seeds", "", "whole"},
        {"--policy", "", "empty"},
        {"--arrivals", "poisson:0", "poisson:RATE"},
        {"--arrivals", "never", "saturated"},
        {"--tokens", "0", "1 .. "},
        {"--output", "xml", "csv"},
        {"--prompt-tokens", "0", "1 .. "},
    };
    for (const auto& [flag, value, word] : mistakes) {
        SimOptions options;
        const std::string text = parse({"--hardware", "study-p1", flag, value}, options);
        EXPECT_TRUE(text.contains(word)) << flag << ": " << text;
    }
    SimOptions options;
    EXPECT_TRUE(parse({}, options).contains("--hardware"));
}

TEST(SimSweep, HasEveryCombinationWithTheSeedsSideBySide) {
    SimOptions options = quick_options();
    options.hardware = {"study-p1", "study-p3"};
    options.evictions = {"two-rate", "lru"};
    options.caches = {{CacheSize::Kind::kPercent, 2500}, {CacheSize::Kind::kBytes, 1'322'000'000}};
    const SimSweep sweep = plan_sweep(options).value();
    ASSERT_EQ(sweep.runs.size(), 2u * 2 * 2 * 2 * 2 * 2);
    EXPECT_EQ(sweep.runs[0].options.seed, 1u);
    EXPECT_EQ(sweep.runs[1].options.seed, 2u);
    EXPECT_EQ(sweep.runs[1].policy, kDefaultPolicy);
    EXPECT_EQ(sweep.runs[2].policy, "lockstep");
    EXPECT_EQ(sweep.runs[0].options.slots, 192u);
    EXPECT_EQ(sweep.runs.back().options.slots, 100u);
    EXPECT_EQ(sweep.runs.back().options.hardware.name, "study-p3");
}

TEST(SimSweep, ResultsDoNotDependOnTheJobs) {
    const std::string one = sim_json(run(quick_options(), 1));
    EXPECT_EQ(one, sim_json(run(quick_options(), 1)));
    EXPECT_EQ(one, sim_json(run(quick_options(), 5)));
}

TEST(SimSweep, WhatCanNotWorkIsRefusedBeforeAnythingRuns) {
    const auto refused = [](const SimOptions& options, const std::string& word) {
        const Result<SimSweep> sweep = plan_sweep(options);
        ASSERT_FALSE(sweep) << word;
        EXPECT_TRUE(sweep.error().text().contains(word)) << sweep.error().text();
    };
    SimOptions options = quick_options();
    options.policies = {"bevy", "psychic"};
    refused(options, "psychic");
    options = quick_options();
    options.evictions = {"random"};
    refused(options, "random");
    options = quick_options();
    options.hardware = {"toaster"};
    refused(options, "study-p1");
    options = quick_options();
    options.model = "gpt-7";
    refused(options, "gpt-oss-20b");
    options = quick_options();
    options.caches = {{CacheSize::Kind::kPercent, 10}};
    refused(options, "--cache 0.53%");
    options = quick_options();
    options.model.clear();
    refused(options, "--trace");
    options = quick_options();
    options.trace = "/no/such.rtrace";
    refused(options, "/no/such.rtrace");
}

TEST(SimSweep, ATraceKnowsItsModelByItsShape) {
    RouteTrace trace{.layers = 24, .experts = 32, .top_k = 4};
    trace.requests.push_back({20, {}});
    for (uint32_t route = 0; route < 20 * trace.layers; route++)
        trace.requests[0].bytes.insert(trace.requests[0].bytes.end(), {0, 1, 2, 3});
    const std::string path = (std::filesystem::path(testing::TempDir()) /
                              ("bevy-" + std::to_string(getpid()) + ".rtrace"))
                                 .string();
    ASSERT_TRUE(write_route_trace(trace, path));
    SimOptions options = quick_options();
    options.model.clear();
    options.trace = path;
    const Result<SimSweep> sweep = plan_sweep(options);
    ASSERT_TRUE(sweep) << sweep.error().text();
    EXPECT_EQ(sweep->model.name, "gpt-oss-20b");
    EXPECT_EQ(sweep->runs[0].options.drop_tokens, 16u);
    trace.layers = 12;
    trace.requests[0].bytes.resize(size_t{20} * 12 * 4);
    ASSERT_TRUE(write_route_trace(trace, path));
    const Result<SimSweep> unknown = plan_sweep(options);
    ASSERT_FALSE(unknown);
    EXPECT_TRUE(unknown.error().message.contains("12 layers")) << unknown.error().message;
    std::filesystem::remove(path);
}

TEST(SimSweep, EndsEarlyWhenToldSo) {
    SimOptions options = quick_options();
    options.tokens = 1'000'000'000;
    SimSweep sweep = plan_sweep(options).value();
    std::atomic<int> questions = 0;
    const Status status = run_sweep(sweep, 2, {.keep_going = [&] { return ++questions < 100; }});
    EXPECT_TRUE(status);
    for (const SimRun& run : sweep.runs)
        EXPECT_FALSE(run.result);
    EXPECT_EQ(sim_table(sweep), "");
    EXPECT_EQ(sim_csv(sweep), "");
}

TEST(SimReport, EveryFormatHasTheSameRuns) {
    const SimSweep sweep = run(quick_options(), 2);
    const auto json = nlohmann::json::parse(sim_json(sweep));
    ASSERT_EQ(json["runs"].size(), sweep.runs.size());
    const auto& first = json["runs"][0];
    EXPECT_EQ(first["policy"], kDefaultPolicy);
    EXPECT_EQ(first["hardware"], "study-p3");
    EXPECT_EQ(first["tokens"], sweep.runs[0].result->tokens);
    EXPECT_GT(first["bound_tokens_per_second"], 0);
    const std::string csv = sim_csv(sweep);
    EXPECT_EQ(std::ranges::count(csv, '\n'), static_cast<long>(sweep.runs.size()) + 1);
    const std::string head = csv.substr(0, csv.find('\n'));
    EXPECT_EQ(std::ranges::count(head, ','), static_cast<long>(first.size()) - 1);
    // The table has means over the two seeds.
    const std::string table = sim_table(sweep);
    EXPECT_EQ(std::ranges::count(table, '\n'), static_cast<long>(sweep.runs.size()) / 2 + 2);
    EXPECT_TRUE(table.contains("of bound"));
    EXPECT_TRUE(table.contains("\u00b1"));
    const std::string plot = sim_plot(sweep);
    EXPECT_TRUE(plot.contains("lockstep") && plot.contains("requests at once"));
}

TEST(SimReport, WithoutLockstepThereIsNoBound) {
    SimOptions options = quick_options();
    options.policies = {"bevy"};
    const SimSweep sweep = run(options, 2);
    EXPECT_FALSE(sim_table(sweep).contains("of bound"));
    const auto json = nlohmann::json::parse(sim_json(sweep));
    EXPECT_TRUE(json["runs"][0]["bound_tokens_per_second"].is_null());
}

}  // namespace
}  // namespace bevy
