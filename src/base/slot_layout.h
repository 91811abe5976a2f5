// How one expert's bytes lie inside a slot: plain data, written by storage/, read by compute/.
//
// Every slot has the same size (that of the largest layer's expert, plus head room for disk
// blocks), so that any expert fits any slot and slot s starts at s * slot_bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace bevy {

struct SlotSlice {
    // Where the slice's first weight byte lies, from the start of the slot: offset number n for the
    // experts whose index is n modulo their number, which is 1, 2 or 4. Multiples of 32.
    std::vector<uint64_t> offsets = {0};
    // True: the disk can deliver straight into the slot, because the slices of those experts start
    // at the same distance from a disk block; the offsets then include that distance. False: reads
    // go through an aligned bounce buffer and are copied.
    bool direct = false;

    uint64_t offset(ExpertIndex expert) const { return offsets[expert.value % offsets.size()]; }
};

struct SlotLayout {
    uint64_t slot_bytes = 0;  // distance between slots; a multiple of the disk block
    std::vector<std::vector<SlotSlice>> layers;  // [LayerIndex][slice]
};

}  // namespace bevy
