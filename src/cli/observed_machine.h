// Looks on while a session runs: which steps it computed, how long each took, and when bytes came
// over the link. For calibration.
//
// Threads: decorators are used by the engine thread; samples() after the session has gone.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "cli/session.h"
#include "sim/step_cost_fit.h"

namespace bevy {

class ObservedMachine {
public:
    // `shape` is that of the model that the session opens.
    ObservedMachine(ComputeShape shape, uint64_t expert_bytes)
        : shape_(std::move(shape)), expert_bytes_(expert_bytes) {}

    // Puts the onlookers between engine and machine. This object outlives the session.
    void decorate(SessionEvents& events);

    // The steps in which every pass had one token, from when the engine started them until it could
    // take their results.
    std::vector<StepSample> samples() const;

private:
    class ComputeOnlooker;
    class LinkOnlooker;

    struct Step {
        StepWork work;
        Instant started;
        Instant finished;
    };
    struct Transfer {
        Instant started;
        Instant finished;
    };

    const ComputeShape shape_;
    const uint64_t expert_bytes_;
    const SystemClock clock_;
    std::vector<Step> steps_;
    std::vector<Transfer> transfers_;
};

}  // namespace bevy
