// What a model file says about its own shape: the hyperparameters that any supported architecture
// may have. An architecture fills in the fields it uses; the rest keep their neutral defaults.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bevy {

struct ModelShape {
    std::string architecture;  // general.architecture
    std::string name;          // general.name, may be empty
    uint32_t layers = 0;
    uint32_t context_train = 0;  // tokens
    uint32_t embedding = 0;
    uint32_t vocabulary = 0;
    uint32_t heads = 0;
    uint32_t heads_kv = 0;
    uint32_t head_size_k = 0;
    uint32_t head_size_v = 0;
    uint32_t experts = 0;                // per MoE layer
    uint32_t experts_used = 0;           // per token
    uint32_t expert_ff = 0;              // width of one expert
    uint32_t sliding_window = 0;         // tokens; 0: none
    uint32_t sliding_window_period = 0;  // as the architecture defines it
    float norm_epsilon = 1e-6f;
    float rope_base = 10000.0f;
    float rope_scale = 1.0f;  // frequency scale: 1 / scaling factor
    uint32_t rope_dimensions = 0;
    uint32_t rope_context_original = 0;  // YaRN; 0: no scaling
    float rope_yarn_ext_factor = 0.0f;
    float rope_yarn_attn_factor = 1.0f;
    float rope_yarn_beta_fast = 32.0f;
    float rope_yarn_beta_slow = 1.0f;
    bool tied_head = false;  // output.weight missing: the embedding is the head
};

}  // namespace bevy
