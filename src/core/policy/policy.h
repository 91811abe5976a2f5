// What the processor does next: a policy reads the state and names one step, or waits.
//
// It is asked whenever no step is in flight. One file per policy, one row in registry.cc.
#pragma once

#include <memory>
#include <optional>

#include "base/units.h"
#include "core/action.h"
#include "core/fetch_planner.h"
#include "core/state.h"

namespace bevy {

struct StepChoice {
    std::optional<StartStep> step;
    // Without a step: ask again at this time even if nothing happens before.
    std::optional<Instant> ask_again;
};

class SchedulePolicy {
public:
    virtual ~SchedulePolicy() = default;
    // May record in the state since when sequences are held. REQUIRES: no step in flight.
    virtual StepChoice choose(CoreState& state, FetchPlanner& planner, Instant now) = 0;
};

// Building blocks shared by policies.

// Adds every resident, not yet computed demand of `seq` to the step.
void add_resident_uses(const CoreState& state, SeqIndex seq, StartStep& step);
// Adds `seq` to those that advance, with its pass when the step is of stage 0.
void add_advancing(const CoreState& state, SeqIndex seq, StartStep& step);
// Brings uses and advancing sequences into the order that Compute wants.
void sort_step(const CoreState& state, StartStep& step);

}  // namespace bevy
