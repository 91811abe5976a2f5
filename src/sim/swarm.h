// One simulated life of the whole engine: a seed is drawn out into options, clients and faults, the
// shipped engine and core run on virtual time, and every rule is checked.
//
// Phases: first faults (reads and steps fail, clients give up), then quiet, in which every request
// that is left must end. A seed always gives the same run; the options are printed when a rule is
// broken.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compute/compute.h"
#include "core/config.h"
#include "engine/stats.h"
#include "engine/trace_recorder.h"
#include "sim/sim_compute.h"
#include "sim/sim_link.h"
#include "sim/sim_model.h"
#include "sim/workload.h"
#include "storage/link.h"

namespace bevy {

struct SwarmOptions {
    uint64_t seed = 0;
    CoreConfig core;
    SimLinkOptions link;
    SimComputeOptions compute;
    WorkloadOptions workload;
    uint32_t context_per_sequence = 0;
    uint32_t mailbox_max = 1;
    bool stop_in_the_middle = false;  // Engine::stop() while requests run

    // All fields, to be printed with a failure.
    std::string text() const;
};

SwarmOptions draw_swarm(uint64_t seed);

// What a test may put between the engine and the simulation, or watch with.
struct SwarmHooks {
    std::function<std::unique_ptr<Link>(Link&)> wrap_link;
    std::function<std::unique_ptr<Compute>(Compute&)> wrap_compute;
    TraceRecorder* trace = nullptr;
};

struct SwarmReport {
    std::vector<std::string> violations;        // empty: every rule held
    uint64_t hash = 0;                          // over everything that happened, times included
    std::vector<std::vector<TokenId>> replies;  // by client
    EngineStats stats;
    uint64_t turns = 0;  // of the event loop
};

SwarmReport run_swarm(const SwarmOptions& options, const SwarmHooks& hooks = {});

}  // namespace bevy
