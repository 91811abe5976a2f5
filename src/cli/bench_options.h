// What the user can say to bevy bench: which settings are compared, under which load.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/options.h"

namespace bevy {

enum class BenchFormat : uint8_t { kMarkdown, kCsv, kJson, kJsonLines };

struct BenchOptions {
    // Of this, policy, eviction, parallel and expert_cache are set for each run from the lists.
    SessionOptions session;

    // The sweep: every combination is measured.
    std::vector<std::string> policies = {std::string(kDefaultPolicy)};
    std::vector<std::string> evictions = {"reuse"};
    std::vector<uint32_t> parallel = {4};
    std::vector<CacheSize> caches = {{}};

    std::string prompts_file;     // empty: random tokens
    uint32_t prompt_tokens = 32;  // of a random prompt
    uint32_t tokens = 64;         // measured, per request on average
    uint32_t warmup = 16;         // generated before that, per request on average
    uint32_t repetitions = 3;
    uint32_t delay_seconds = 0;  // rest before each run

    BenchFormat format = BenchFormat::kMarkdown;
    std::string plot;  // path; empty: none
    bool quiet = false;
};

// Declares the options; parsing fills the struct, which must outlive `app`.
void declare_bench_options(CLI::App& app, BenchOptions& options);

}  // namespace bevy
