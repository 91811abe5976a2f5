// The experiments of one bevy sim: what is to be run, and what came out.
//
// They are independent of each other, so they run on several threads; each result follows from its
// own options alone.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/route_trace.h"
#include "cli/sim_options.h"
#include "sim/experiment.h"

namespace bevy {

struct SimRun {
    std::string policy;
    std::string eviction;
    ExperimentOptions options;  // its names of policies are those above
    std::optional<ExperimentResult> result;
    // In tokens per second; only if lockstep ran under the same options.
    std::optional<double> bound;

    double cache_share() const {
        return static_cast<double>(options.slots) / options.model.expert_count();
    }
};

struct SimSweep {
    ModelProfile model;
    std::string routes;  // where they come from
    RouteTrace trace;
    std::vector<SimRun> runs;  // seeds vary fastest
};

// Opens what the options name and refuses what can't work, before anything runs.
Result<SimSweep> plan_sweep(const SimOptions& options);

struct SweepProgress {
    std::function<void(size_t done, size_t total)> show;  // by the calling thread
    std::function<bool()> keep_going;                     // by any thread
};
// Runs all; `jobs` is at least 1. The first error ends it; when it is told not to go on, runs are
// left without a result.
Status run_sweep(SimSweep& sweep, uint32_t jobs, const SweepProgress& progress);

}  // namespace bevy
