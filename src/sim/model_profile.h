// A model as the simulation sees it: how many experts, how large, and how its work compares with
// that of gpt-oss-20b, for which hardware profiles state their costs. Plain data; the files in
// profiles/models/ are read by cli/profiles.h.
#pragma once

#include <cstdint>
#include <string>

#include "sim/generated_routes.h"

namespace bevy {

struct ModelProfile {
    std::string name;
    std::string comment;  // where the numbers come from

    uint32_t layers = 0;   // with routed experts
    uint32_t experts = 0;  // per layer
    uint32_t top_k = 0;    // experts per token and layer
    uint64_t expert_bytes = 0;
    uint64_t layer_bytes = 0;  // resident weights that the dense part of a layer reads
    uint64_t entry_bytes =
        0;  // the same of dense layers in front of the first router, all together
    uint64_t head_bytes = 0;
    // Costs per token, in thousandths of those in the hardware profile.
    uint32_t pair_per_mille = 1000;
    uint32_t layer_per_mille = 1000;
    uint32_t head_per_mille = 1000;
    RoutingStatistics routing;  // for routes that are generated

    uint32_t expert_count() const { return layers * experts; }
};

}  // namespace bevy
