// The least that a processor has to do for requests of given routes: what it takes when all of them
// always share every step.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "sim/route_source.h"
#include "sim/step_cost.h"

namespace bevy {

struct MergedComputeOptions {
    uint32_t parallel = 1;
    uint32_t request_tokens_max = 0;  // 0: as in the source
    uint64_t tokens_skipped = 0;
    uint64_t tokens = 1;
};

// Per token, over about `tokens` tokens after the skipped ones.
Duration merged_compute_per_token(const MergedComputeOptions& options, const RouteSource& source,
                                  const StepCosts& costs);

}  // namespace bevy
