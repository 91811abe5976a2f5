// What bevy bench prints and draws.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/bench_options.h"
#include "cli/bench_run.h"

namespace bevy {

// A combination of settings and its measurements, one per repetition that is done.
struct BenchSetting {
    std::string policy;
    std::string eviction;
    uint32_t parallel = 0;
    CacheSize cache;
    std::vector<BenchResult> results;
};

struct BenchSweep {
    std::string model;  // path
    uint64_t model_bytes = 0;
    std::string processor;
    uint32_t cores = 0;
    std::string started;  // UTC, ISO 8601
    uint32_t prompt_tokens_max = 0;
    uint32_t tokens = 0;
    uint32_t warmup = 0;
    std::vector<BenchSetting> settings;
};

// Medians over the repetitions, with the spread of the throughput; settings without results are
// left out.
std::string bench_markdown(const BenchSweep& sweep);
// Every repetition with every number.
std::string bench_csv(const BenchSweep& sweep);
std::string bench_json(const BenchSweep& sweep);
std::string bench_jsonl(const BenchSweep& sweep);
// Median throughput over the requests at once, or over the cache where that varies more.
std::string bench_plot(const BenchSweep& sweep);

// Settings whose requests generated other tokens than the first setting's: nothing if all agree, as
// they must.
std::optional<std::string> different_outputs(const BenchSweep& sweep);

}  // namespace bevy
