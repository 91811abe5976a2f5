// A model made of hashes: the same data flow as a mixture-of-experts transformer, with one 64-bit
// number where a real one has a row of activations.
//
// Every intermediate depends on everything that it should depend on (token, position, all earlier
// positions at this layer, the bytes found in the slot, the order of the sum), so that any mistake
// of a scheduler shows in the tokens. Routing is a function of the sequence alone: each has its own
// favourite experts.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

namespace bevy {

// Mixes numbers into one; order matters.
constexpr uint64_t sim_mix(uint64_t a, uint64_t b) {
    uint64_t z = (a ^ (b + 0x9e3779b97f4a7c15 + (a << 6) + (a >> 2)));
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}
constexpr uint64_t sim_mix(uint64_t a, uint64_t b, uint64_t c) {
    return sim_mix(sim_mix(a, b), c);
}

struct SimModel {
    uint32_t layers = 1;  // all with routed experts, except that an ordinary one may follow
    uint32_t experts_per_layer = 2;
    uint32_t experts_used = 1;
    bool last_layer_is_moe = true;
    uint32_t working_set = 2;         // favourite experts of a sequence per layer
    uint32_t favourite_percent = 80;  // how often a favourite is chosen

    // Token ids are below this: they carry enough of the hash that two texts never agree by chance.
    static constexpr uint32_t kVocabulary = 1u << 30;
    static constexpr size_t kLogits = 4;

    static uint64_t embed(TokenId token, uint32_t position);
    // `memory` is the hash over the earlier positions at this layer; it takes in this row.
    static uint64_t attend(uint64_t row, uint32_t layer, uint64_t& memory);
    // What lies in a slot that holds `expert`.
    static uint64_t expert_bytes(ExpertId expert);
    static uint64_t expert_output(uint64_t row, uint64_t bytes);
    // `outputs` in router order.
    static uint64_t combine(uint64_t row, std::span<const uint64_t> outputs);
    // Four numbers that a float holds exactly.
    static std::vector<float> logits(uint64_t row);
    static TokenId sample(std::span<const float> logits);

    // The experts of a row at a layer, in router order. `text`: names the sequence (its first
    // token).
    std::vector<ExpertIndex> route(uint64_t row, uint32_t layer, TokenId text) const;
    ExpertId id(uint32_t layer, ExpertIndex expert) const {
        return ExpertId(layer * experts_per_layer + expert.value);
    }

    // The reply to a prompt, computed one token after the other without caches, slots or schedules.
    std::vector<TokenId> reply(std::span<const TokenId> prompt, uint32_t tokens) const;
};

}  // namespace bevy
