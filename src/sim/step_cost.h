// What a step takes on a simulated machine; see hardware_profile.h for the formula.
#pragma once

#include <cstdint>
#include <vector>

#include "base/units.h"
#include "sim/hardware_profile.h"
#include "sim/model_profile.h"

namespace bevy {

// What a step does.
struct StepWork {
    uint32_t stage = 0;
    uint32_t experts = 0;   // distinct
    uint32_t pairs = 0;     // (token, expert)
    uint32_t rows = 0;      // tokens in the dense part
    bool advances = false;  // the dense part runs
};

struct StepCost {
    Duration processor;
    Duration memory;  // at the full bandwidth

    Duration total() const { return processor + memory; }
};

// The costs of one model on one machine.
class StepCosts {
public:
    StepCosts(const HardwareProfile& hardware, const ModelProfile& model);

    StepCost of(const StepWork& work) const;
    // Resident bytes that the dense part of stage 0 .. layers reads.
    const std::vector<uint64_t>& dense_bytes() const { return dense_bytes_; }
    // Time on the link of one expert.
    Duration transfer() const { return transfer_; }

private:
    uint64_t memory_bytes_per_second_;
    uint64_t expert_bytes_;
    std::vector<uint64_t> dense_bytes_;
    Duration launch_;
    Duration pair_;
    Duration layer_;
    Duration head_;
    Duration transfer_;
};

}  // namespace bevy
