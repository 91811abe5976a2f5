// Plans how experts lie inside a slot (base/slot_layout.h). Pure functions of sizes and offsets.
//
// Direct I/O reads whole disk blocks, so a slice is read with the blocks around it. When the
// experts of a slice start at few different distances from a block border (one, when an expert is a
// number of whole blocks; up to four, as for the MXFP4 experts of gpt-oss on a disk with blocks of
// 512 bytes), the slot leaves room for the largest head and for the tail, and the disk delivers
// straight into it. Each such region spans whole blocks, so that a widened read never touches a
// neighbour, in whatever order reads finish. Other slices are packed behind them and filled by
// copying.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "base/expert_table.h"
#include "base/slot_layout.h"

namespace bevy {

// A range of a file, widened to whole blocks.
struct WidenedRange {
    uint64_t offset = 0;  // a multiple of the block
    uint64_t length = 0;  // a multiple of the block
    uint64_t head = 0;    // bytes between `offset` and the first byte that was asked for
};

// REQUIRES: block > 0, extent.offset + extent.length + block does not overflow.
WidenedRange widen_to_blocks(const Extent& extent, uint64_t block);

// `block`: a power of two that file offsets, lengths and memory addresses of reads must be
// multiples of; 1 for buffered reads, which makes every slice direct with no widening. Error:
// kCorruptFile when sizes are zero or overflow, kInvalidArgument for a bad block.
Result<SlotLayout> plan_slot_layout(const ExpertTable& table, uint64_t block);

}  // namespace bevy
