#include "storage/slot_layout.h"

#include <algorithm>
#include <bit>
#include <format>
#include <vector>

#include "base/units.h"

namespace bevy {

namespace {

// What compute/ asks for: vector loads of weights must not straddle cache lines.
constexpr uint64_t kCacheLine = 64;
// GGUF's alignment, and the contract of SlotSlice::offset.
constexpr uint64_t kSliceAlignment = 32;
// Far above any file, far below overflow of sums of a few of them.
constexpr uint64_t kBytesMax = uint64_t{1} << 56;
constexpr uint64_t kBlockMax = kMiB;

Status check_slice(const ExpertSlice& slice, uint32_t experts, size_t layer, size_t index) {
    const uint64_t room = kBytesMax - std::min(slice.offset, kBytesMax);
    if (slice.bytes_per_expert == 0 || slice.bytes_per_expert > room / std::max(experts, 1u)) {
        return fail(ErrorCode::kCorruptFile,
                    std::format("slice {} of the experts of MoE layer {} has an impossible size: "
                                "{} experts of {} bytes at offset {}",
                                index, layer, experts, slice.bytes_per_expert, slice.offset),
                    "the model file is damaged; download or convert it again");
    }
    return {};
}

bool can_be_direct(const ExpertSlice& slice, uint64_t block) {
    return slice.bytes_per_expert % block == 0 && slice.offset % block % kSliceAlignment == 0;
}

// Places the slices of one layer and returns the bytes they take. Direct regions come first: they
// are whole blocks, so nothing is lost between them.
uint64_t place_layer(const LayerExperts& layer, uint64_t block, std::vector<SlotSlice>& out) {
    out.assign(layer.slices.size(), SlotSlice{});
    uint64_t cursor = 0;
    for (bool direct : {true, false}) {
        for (size_t i = 0; i < layer.slices.size(); ++i) {
            const ExpertSlice& slice = layer.slices[i];
            if (can_be_direct(slice, block) != direct)
                continue;
            cursor = round_up(cursor, kCacheLine);
            const uint64_t head = direct ? slice.offset % block : 0;
            const uint64_t length = head + slice.bytes_per_expert;
            out[i] = {cursor + head, direct};
            cursor += direct ? round_up(length, block) : length;
        }
    }
    return cursor;
}

}  // namespace

WidenedRange widen_to_blocks(const Extent& extent, uint64_t block) {
    const uint64_t begin = round_down(extent.offset, block);
    const uint64_t end = round_up(extent.offset + extent.length, block);
    return {begin, end - begin, extent.offset - begin};
}

Result<SlotLayout> plan_slot_layout(const ExpertTable& table, uint64_t block) {
    if (!std::has_single_bit(block) || block > kBlockMax) {
        return fail(ErrorCode::kInvalidArgument,
                    std::format("a disk block of {} bytes is not a power of two up to {}", block,
                                kBlockMax),
                    "use --direct-io off");
    }
    SlotLayout layout;
    layout.layers.resize(table.layers.size());
    uint64_t largest = 0;
    for (size_t l = 0; l < table.layers.size(); ++l) {
        const LayerExperts& layer = table.layers[l];
        uint64_t layer_bytes = 0;
        for (size_t s = 0; s < layer.slices.size(); ++s) {
            if (Status ok = check_slice(layer.slices[s], table.experts_per_layer, l, s); !ok)
                return std::unexpected(ok.error());
            layer_bytes += layer.slices[s].bytes_per_expert;
            if (layer_bytes > kBytesMax) {
                return fail(ErrorCode::kCorruptFile,
                            std::format("an expert of MoE layer {} is impossibly large", l),
                            "the model file is damaged; download or convert it again");
            }
        }
        largest = std::max(largest, place_layer(layer, block, layout.layers[l]));
    }
    layout.slot_bytes = round_up(std::max<uint64_t>(largest, 1), std::max(block, kCacheLine));
    return layout;
}

}  // namespace bevy
