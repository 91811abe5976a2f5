// The names of things, as distinct types, so that a slot is never mistaken for an expert.
#pragma once

#include <compare>
#include <cstdint>

namespace bevy {

// An integer that only compares with its own kind. `value` is for indexing arrays.
template <class Tag, class Rep>
struct StrongId {
    Rep value{};

    constexpr StrongId() = default;
    explicit constexpr StrongId(Rep v) : value(v) {}
    friend constexpr auto operator<=>(StrongId, StrongId) = default;
};

// One generation, unique for the life of the process.
using RequestId = StrongId<struct RequestIdTag, uint64_t>;
// A place for a running request: its KV memory and activation rows. 0 .. sequences-1, reused.
using SeqIndex = StrongId<struct SeqIndexTag, uint32_t>;
// A layer that has routed experts, counted among those only: 0 .. moe_layers-1.
using LayerIndex = StrongId<struct LayerIndexTag, uint32_t>;
// An expert within its layer, as the router numbers them.
using ExpertIndex = StrongId<struct ExpertIndexTag, uint32_t>;
// An expert of the whole model: layer * experts_per_layer + index.
using ExpertId = StrongId<struct ExpertIdTag, uint32_t>;
// A place in fast memory that holds one expert.
using SlotIndex = StrongId<struct SlotIndexTag, uint32_t>;
// One read or one step in flight. Reused after completion.
using Ticket = StrongId<struct TicketTag, uint32_t>;
// A token of the model's vocabulary.
using TokenId = int32_t;

}  // namespace bevy
