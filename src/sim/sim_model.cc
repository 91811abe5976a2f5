#include "sim/sim_model.h"

#include <algorithm>

#include "base/prng.h"

namespace bevy {

namespace {

// So that the same numbers in different roles give different hashes.
enum Role : uint64_t { kEmbed = 1, kAttend, kExpert, kOutput, kSum, kRoute, kFavourites };

}  // namespace

uint64_t SimModel::embed(TokenId token, uint32_t position) {
    return sim_mix(sim_mix(kEmbed, static_cast<uint64_t>(token)), position);
}

uint64_t SimModel::attend(uint64_t row, uint32_t layer, uint64_t& memory) {
    memory = sim_mix(memory, row, layer);
    return sim_mix(kAttend, row, memory);
}

uint64_t SimModel::expert_bytes(ExpertId expert) {
    return sim_mix(kExpert, expert.value);
}

uint64_t SimModel::expert_output(uint64_t row, uint64_t bytes) {
    return sim_mix(kOutput, row, bytes);
}

uint64_t SimModel::combine(uint64_t row, std::span<const uint64_t> outputs) {
    uint64_t sum = sim_mix(kSum, row);
    for (uint64_t output : outputs)
        sum = sim_mix(sum, output);
    return sum;
}

std::vector<float> SimModel::logits(uint64_t row) {
    std::vector<float> parts;
    for (size_t i = 0; i < kLogits; i++)
        parts.push_back(static_cast<float>((row >> (16 * i)) & 0xFFFF));
    return parts;
}

TokenId SimModel::sample(std::span<const float> logits) {
    uint64_t row = 0;
    for (size_t i = 0; i < logits.size(); i++)
        row |= static_cast<uint64_t>(logits[i]) << (16 * i);
    return static_cast<TokenId>(row % kVocabulary);
}

std::vector<ExpertIndex> SimModel::route(uint64_t row, uint32_t layer, TokenId text) const {
    Prng favourites(sim_mix(kFavourites, static_cast<uint64_t>(text), layer));
    std::vector<uint32_t> order(experts_per_layer);
    for (uint32_t i = 0; i < experts_per_layer; i++)
        order[i] = i;
    for (uint32_t i = 0; i < working_set; i++)
        std::swap(order[i], order[i + favourites.below(experts_per_layer - i)]);

    Prng choice(sim_mix(kRoute, row, layer));
    std::vector<ExpertIndex> chosen;
    while (chosen.size() < experts_used) {
        const bool favourite = choice.chance(favourite_percent, 100);
        const ExpertIndex expert(order[choice.below(favourite ? working_set : experts_per_layer)]);
        if (!std::ranges::contains(chosen, expert))
            chosen.push_back(expert);
    }
    return chosen;
}

std::vector<TokenId> SimModel::reply(std::span<const TokenId> prompt, uint32_t tokens) const {
    std::vector<TokenId> text(prompt.begin(), prompt.end());
    std::vector<uint64_t> memory(layers + 1);
    for (uint32_t position = 0; text.size() < prompt.size() + tokens; position++) {
        uint64_t row = embed(text[position], position);
        for (uint32_t layer = 0; layer < layers; layer++) {
            row = attend(row, layer, memory[layer]);
            std::vector<uint64_t> outputs;
            for (ExpertIndex expert : route(row, layer, text[0]))
                outputs.push_back(expert_output(row, expert_bytes(id(layer, expert))));
            row = combine(row, outputs);
        }
        if (!last_layer_is_moe)
            row = attend(row, layers, memory[layers]);
        if (position + 1 == text.size())
            text.push_back(sample(logits(row)));
    }
    return {text.begin() + static_cast<ptrdiff_t>(prompt.size()), text.end()};
}

}  // namespace bevy
