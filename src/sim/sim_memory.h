// The slots of a simulation: one number per slot where a real one has bytes, and who touches it
// now. Shared by SimLink, which writes, and SimCompute, which reads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "sim/sim_log.h"
#include "sim/sim_model.h"

namespace bevy {

class SimMemory {
public:
    SimMemory(uint32_t slots, SimLog& log) : slots_(slots), log_(log) {}

    // From here on, until the transfer has ended, the slot holds garbage.
    void begin_write(SlotIndex slot) {
        Slot& s = slots_[slot.value];
        if (s.readers > 0)
            log_.violation("a read into slot " + name(slot) + " while a step uses it");
        if (s.writing)
            log_.violation("two reads into slot " + name(slot));
        s.writing = true;
        s.bytes = kGarbage;
    }
    void end_write(SlotIndex slot, bool ok, ExpertId expert) {
        Slot& s = slots_[slot.value];
        s.writing = false;
        s.bytes = ok ? SimModel::expert_bytes(expert) : kGarbage;
    }
    void begin_use(SlotIndex slot, ExpertId expert) {
        Slot& s = slots_[slot.value];
        if (s.writing)
            log_.violation("a step uses slot " + name(slot) + " while it is being filled");
        if (s.bytes != SimModel::expert_bytes(expert))
            log_.violation("a step uses slot " + name(slot) + ", which does not hold expert " +
                           std::to_string(expert.value));
        s.readers++;
    }
    void end_use(SlotIndex slot) { slots_[slot.value].readers--; }
    uint64_t bytes(SlotIndex slot) const { return slots_[slot.value].bytes; }

private:
    static constexpr uint64_t kGarbage = 0xDEAD;
    struct Slot {
        uint64_t bytes = kGarbage;
        bool writing = false;
        uint32_t readers = 0;
    };
    static std::string name(SlotIndex slot) { return std::to_string(slot.value); }

    std::vector<Slot> slots_;
    SimLog& log_;
};

}  // namespace bevy
