// What the user can say to bevy sim: which machines, policies and loads are compared.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/config.h"
#include "engine/memory_plan.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace bevy {

enum class SimFormat : uint8_t { kTable, kCsv, kJson };

struct SimOptions {
    std::string trace;  // path of recorded routes; empty: generated ones
    std::string model;  // empty: the built-in one whose shape the trace has
    std::vector<std::string> hardware;

    // The sweep: every combination is an experiment.
    std::vector<std::string> policies = {std::string(kDefaultPolicy), "lockstep"};
    std::vector<std::string> evictions = {"reuse"};
    std::vector<uint32_t> parallel = {8};
    std::vector<CacheSize> caches = {{CacheSize::Kind::kPercent, 5000}};
    std::vector<uint64_t> seeds = {1};

    uint64_t tokens = 3000;
    uint64_t warmup = 1500;
    std::optional<uint32_t> drop;  // nothing: what suits the routes
    uint32_t prompt_tokens = 1;
    uint32_t request_tokens = 0;     // 0: as in the routes
    double arrivals_per_second = 0;  // 0: saturated

    std::string read_order = "lag";
    uint32_t lookahead = 1;
    uint32_t prefetch_reads = 2;
    uint32_t guess_right_resident = 80;  // percent
    uint32_t guess_right_missing = 60;

    uint32_t jobs = 0;  // 0: one per core
    SimFormat format = SimFormat::kTable;
    std::string plot;  // path; empty: none
    bool quiet = false;
};

// Declares the options; parsing fills the struct, which must outlive `app`.
void declare_sim_options(CLI::App& app, SimOptions& options);

}  // namespace bevy
