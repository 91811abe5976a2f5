// The memory of all expert slots: one aligned mapping, slot s at s * slot_bytes.
//
// Memory becomes resident when it is first written, unless populate() is called (or a reader
// registers it with the kernel). Address and size never change. Any thread may look at it; who may
// touch a slot when is the engine's business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "base/ids.h"
#include "storage/aligned_memory.h"

namespace bevy {

class SlotArena {
public:
    // `slot_bytes`: SlotLayout::slot_bytes. Error: kInvalidArgument (no bytes), kBudget (no
    // memory).
    static Result<SlotArena> create(uint64_t slot_bytes, uint32_t slots);

    Status populate() { return memory_.populate(); }
    uint64_t resident_bytes() const { return memory_.resident_bytes(); }

    std::byte* base() const { return memory_.bytes().data(); }
    uint64_t slot_bytes() const { return slot_bytes_; }
    uint32_t slots() const { return slots_; }
    uint64_t bytes() const { return slot_bytes_ * slots_; }
    // REQUIRES: index < slots().
    std::span<std::byte> slot(SlotIndex index) const;

private:
    SlotArena(AlignedMemory memory, uint64_t slot_bytes, uint32_t slots)
        : memory_(std::move(memory)), slot_bytes_(slot_bytes), slots_(slots) {}

    AlignedMemory memory_;
    uint64_t slot_bytes_ = 0;
    uint32_t slots_ = 0;
};

}  // namespace bevy
