// What steps cost on a real machine, from steps that it ran: the numbers of a hardware profile.
//
// Least squares on the formula in hardware_profile.h, with no cost below zero (and none of memory
// below what the memory itself needs). Where two causes always come together, what they cost
// together is right, and how it is divided is not. Costs come from the steps during which the link
// was idle, if there are enough of them, and what a busy link costs from the others: small steps
// are those that wait for experts, so that in all steps together the two would be taken for each
// other.
#pragma once

#include <cstdint>
#include <span>

#include "base/units.h"
#include "sim/step_cost.h"

namespace bevy {

// A step of a real machine.
struct StepSample {
    StepWork work;
    bool head = false;   // of the last stage
    uint64_t bytes = 0;  // of the weights that it read: its distinct experts and the dense part
    Duration took;
    Duration link_busy;  // of that, bytes came over the link
};

struct FittedCosts {
    double launch_ns = 0;
    double pair_ns = 0;
    double layer_ns = 0;
    double head_ns = 0;
    double byte_ns = 0;
    double contention = 0;  // part of its speed that a step loses while the link is busy, 0 .. 0.95
    // Root of the mean square of (fitted - real) / mean of the real ones, over all samples.
    double error = 0;

    double time_ns(const StepSample& sample) const;
};

// `byte_ns_min`: what a byte takes at the full bandwidth of the memory. REQUIRES: at least one
// sample.
FittedCosts fit_step_costs(std::span<const StepSample> samples, double byte_ns_min);

}  // namespace bevy
