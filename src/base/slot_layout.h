// How one expert's bytes lie inside a slot: plain data, written by storage/, read by compute/.
//
// Every slot has the same size (that of the largest layer's expert, plus head room for disk
// blocks), so that any expert fits any slot and slot s starts at s * slot_bytes.
#pragma once

#include <cstdint>
#include <vector>

namespace bevy {

struct SlotSlice {
    // Where the slice's first weight byte lies, from the start of the slot; a multiple of 32.
    uint64_t offset = 0;
    // True: the disk can deliver straight into the slot, because the slice of every expert of this
    // layer starts at the same distance from a disk block; `offset` then includes that distance.
    // False: reads go through an aligned bounce buffer and are copied.
    bool direct = false;
};

struct SlotLayout {
    uint64_t slot_bytes = 0;  // distance between slots; a multiple of the disk block
    std::vector<std::vector<SlotSlice>> layers;  // [LayerIndex][slice]
};

}  // namespace bevy
