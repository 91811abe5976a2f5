#include "storage/slot_arena.h"

#include <format>
#include <limits>
#include <utility>

#include "base/assert.h"
#include "base/units.h"

namespace bevy {

Result<SlotArena> SlotArena::create(uint64_t slot_bytes, uint32_t slots) {
    if (slot_bytes == 0 || slots == 0) {
        return fail(
            ErrorCode::kInvalidArgument,
            std::format("an expert cache of {} slots of {} bytes holds nothing", slots, slot_bytes),
            "choose a larger --expert-cache");
    }
    if (slot_bytes > std::numeric_limits<uint64_t>::max() / slots) {
        return fail(
            ErrorCode::kBudget,
            std::format("{} slots of {} exceed the address space", slots, format_bytes(slot_bytes)),
            "choose a smaller --expert-cache");
    }
    auto memory = AlignedMemory::create(slot_bytes * slots, std::format("{} expert slots", slots));
    if (!memory)
        return std::unexpected(memory.error());
    return SlotArena(std::move(*memory), slot_bytes, slots);
}

std::span<std::byte> SlotArena::slot(SlotIndex index) const {
    BEVY_ASSERT(index.value < slots_);
    return memory_.bytes().subspan(index.value * slot_bytes_, slot_bytes_);
}

}  // namespace bevy
