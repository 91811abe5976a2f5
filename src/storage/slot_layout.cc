#include "storage/slot_layout.h"

#include <algorithm>
#include <bit>
#include <format>
#include <numeric>
#include <vector>

#include "base/units.h"

namespace bevy {

namespace {

// What compute/ asks for: vector loads of weights must not straddle cache lines.
constexpr uint64_t kCacheLine = 64;
// GGUF's alignment, and the contract of SlotSlice::offset.
constexpr uint64_t kSliceAlignment = 32;
// Of the distances from a block; each costs the compute a product of its own.
constexpr uint64_t kPeriodMax = 4;
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

// After so many experts, one starts at the same distance from a block as the first.
uint64_t period_of(const ExpertSlice& slice, uint64_t block) {
    return block / std::gcd(slice.bytes_per_expert, block);
}

bool can_be_direct(const ExpertSlice& slice, uint64_t block) {
    const uint64_t alignment = std::min(kSliceAlignment, block);
    return period_of(slice, block) <= kPeriodMax && slice.offset % alignment == 0 &&
           slice.bytes_per_expert % alignment == 0;
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
            if (!direct) {
                out[i] = {{cursor}, false};
                cursor += slice.bytes_per_expert;
                continue;
            }
            out[i] = {{}, true};
            uint64_t length = 0;
            for (uint64_t e = 0; e < period_of(slice, block); ++e) {
                const uint64_t head = (slice.offset + e * slice.bytes_per_expert) % block;
                out[i].offsets.push_back(cursor + head);
                length = std::max(length, round_up(head + slice.bytes_per_expert, block));
            }
            cursor += length;
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
