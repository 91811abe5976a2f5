// What the core is told once: the model's shape, the limits, and which policies to use.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace bevy {

// Runahead; with few requests, whose link is often idle, it also reads what the next router will
// probably choose.
inline constexpr std::string_view kDefaultPolicy = "bevy+prefetch-next-gate@4";

struct CoreConfig {
    uint32_t moe_layers = 0;
    uint32_t experts_per_layer = 0;
    uint32_t experts_used = 0;  // per token and layer
    bool last_layer_is_moe = true;
    uint32_t slots = 0;
    uint32_t sequences = 0;           // requests that run at once
    uint32_t queue_max = 0;           // requests that may wait for a sequence
    uint32_t reads_inflight_max = 4;  // tickets are 0 .. max-1
    uint32_t chunk_tokens = 256;      // prefill passes are cut at multiples of this position
    uint32_t prefill_sequences = 0;  // sequences that may run a pass of more than one token at once
    uint64_t expert_bytes = 0;       // of one expert, for cost estimates
    std::vector<uint64_t> dense_bytes;  // per stage 0 .. moe_layers, for cost estimates
    std::string_view policy = "bevy";   // see policy/registry.h for what a name may be
    std::string_view eviction = "reuse";
    std::string_view read_order = "lag";
    uint32_t lookahead = 1;           // layers that a predictor looks ahead
    uint32_t prefetch_reads_max = 2;  // reads of guesses in flight at once
    // What stands in SequenceAdvanced::guesses: layers ahead (0: none), and whether it is the
    // truth.
    uint32_t guessed_layers = 0;
    bool guesses_are_true = false;
};

}  // namespace bevy
