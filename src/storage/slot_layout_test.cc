#include "storage/slot_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "base/units.h"

namespace bevy {
namespace {

ExpertTable one_layer(uint32_t experts, std::vector<ExpertSlice> slices) {
    ExpertTable table;
    table.experts_per_layer = experts;
    table.layers.push_back({std::move(slices)});
    return table;
}

TEST(slot_layout, widens_to_whole_blocks) {
    const WidenedRange range = widen_to_blocks({0, 4096 + 32, 8192}, 4096);
    EXPECT_EQ(range.offset, 4096u);
    EXPECT_EQ(range.length, 3 * 4096u);
    EXPECT_EQ(range.head, 32u);
    const WidenedRange exact = widen_to_blocks({0, 8192, 4096}, 4096);
    EXPECT_EQ(exact.offset, 8192u);
    EXPECT_EQ(exact.length, 4096u);
    EXPECT_EQ(exact.head, 0u);
    const WidenedRange bytes = widen_to_blocks({0, 77, 5}, 1);
    EXPECT_EQ(bytes.offset, 77u);
    EXPECT_EQ(bytes.length, 5u);
}

TEST(slot_layout, slices_of_whole_blocks_are_direct_with_head_room) {
    const auto layout = plan_slot_layout(
        one_layer(4, {{0, 4096 + 96, 8192}, {0, 65536, 4096}, {1, 1024, 8192}}), 4096);
    ASSERT_TRUE(layout);
    const std::vector<SlotSlice>& slices = layout->layers[0];
    EXPECT_TRUE(slices[0].direct && slices[1].direct && slices[2].direct);
    const ExpertIndex any(3);
    EXPECT_EQ(slices[0].offset(any) % 4096, 96u);
    EXPECT_EQ(slices[1].offset(any) % 4096, 0u);
    EXPECT_EQ(slices[2].offset(any) % 4096, 1024u);
    // 8192 bytes in 3 blocks, 4096 in 1, 8192 in 3.
    EXPECT_EQ(layout->slot_bytes, 7 * 4096u);
}

// The experts of gpt-oss: 2880 x 2880 weights of MXFP4, a quarter of a block beyond whole ones.
TEST(slot_layout, experts_at_few_distances_from_a_block_are_direct_too) {
    constexpr uint64_t kBytes = 2880 * 2880 / 32 * 17;
    const auto layout = plan_slot_layout(
        one_layer(32, {{0, 4096 + 64, kBytes}, {0, kGiB, kBytes}, {0, 2 * kGiB + 96, kBytes}}),
        512);
    ASSERT_TRUE(layout);
    for (const SlotSlice& slice : layout->layers[0]) {
        EXPECT_TRUE(slice.direct);
        EXPECT_EQ(slice.offsets.size(), 4u);
    }
    const SlotSlice& first = layout->layers[0][0];
    for (const auto& [expert, distance] : {std::pair{0, 64}, {1, 192}, {2, 320}, {3, 448}, {4, 64}})
        EXPECT_EQ(first.offset(ExpertIndex(expert)) % 512, static_cast<uint64_t>(distance));
    // With larger blocks there would be too many.
    const auto coarse = plan_slot_layout(one_layer(32, {{0, 4096, kBytes}}), 4096);
    ASSERT_TRUE(coarse);
    EXPECT_FALSE(coarse->layers[0][0].direct);
    EXPECT_EQ(coarse->layers[0][0].offsets.size(), 1u);
}

TEST(slot_layout, other_slices_are_packed_behind) {
    const auto layout =
        plan_slot_layout(one_layer(4, {{0, 96, 1000}, {0, 8192, 4096}, {0, 40, 4096}}), 4096);
    ASSERT_TRUE(layout);
    const std::vector<SlotSlice>& slices = layout->layers[0];
    EXPECT_FALSE(slices[0].direct);  // its experts start at changing distances from a block
    EXPECT_TRUE(slices[1].direct);
    EXPECT_FALSE(slices[2].direct);  // 40 is no multiple of 32: compute can't use it in place
    const ExpertIndex any(3);
    EXPECT_EQ(slices[1].offset(any), 0u);
    EXPECT_EQ(slices[0].offset(any), 4096u);
    EXPECT_EQ(slices[2].offset(any), 4096u + 1024u);
    EXPECT_EQ(layout->slot_bytes, 3 * 4096u);
}

TEST(slot_layout, buffered_reads_are_direct_and_not_widened) {
    const auto layout = plan_slot_layout(one_layer(7, {{0, 13, 1001}, {0, 99999, 17}}), 1);
    ASSERT_TRUE(layout);
    EXPECT_TRUE(layout->layers[0][0].direct && layout->layers[0][1].direct);
    EXPECT_EQ(layout->layers[0][0].offsets, std::vector<uint64_t>{0});
    EXPECT_EQ(layout->layers[0][1].offsets, std::vector<uint64_t>{1024});
    EXPECT_EQ(layout->slot_bytes, 1088u);
}

TEST(slot_layout, refuses_impossible_sizes) {
    for (const ExpertSlice& slice :
         {ExpertSlice{0, 0, 0}, ExpertSlice{0, 0, ~uint64_t{0}}, ExpertSlice{0, ~uint64_t{0}, 512},
          ExpertSlice{0, 0, uint64_t{1} << 50}}) {
        const auto layout = plan_slot_layout(one_layer(1 << 20, {slice}), 512);
        ASSERT_FALSE(layout);
        EXPECT_EQ(layout.error().code, ErrorCode::kCorruptFile);
    }
    for (uint64_t block : {0, 3, 513, 1 << 30}) {
        const auto layout = plan_slot_layout(one_layer(1, {{0, 0, 512}}), block);
        ASSERT_FALSE(layout);
        EXPECT_EQ(layout.error().code, ErrorCode::kInvalidArgument);
    }
}

ExpertTable random_table(Prng& prng, uint64_t block) {
    ExpertTable table;
    table.experts_per_layer = static_cast<uint32_t>(prng.between(1, 9));
    const uint64_t slices = prng.between(1, 4);
    table.layers.resize(prng.between(1, 5));
    for (LayerExperts& layer : table.layers) {
        for (uint64_t s = 0; s < slices; ++s) {
            const uint64_t unit =
                prng.chance(1, 2) ? std::max<uint64_t>(block >> prng.below(5), 1) : 1;
            const uint64_t step = prng.chance(9, 10) ? 32 : 1;
            layer.slices.push_back(
                {static_cast<uint32_t>(prng.below(3)), prng.below(1 << 20) * step,
                 prng.between(1, 20'000 / std::min(unit, uint64_t{5000})) * unit});
        }
    }
    return table;
}

// The bytes of the slot that reads of a slice may write: [begin, end).
std::pair<uint64_t, uint64_t> written(const ExpertSlice& slice, const SlotSlice& place,
                                      ExpertIndex expert, uint64_t block) {
    const uint64_t offset = place.offset(expert);
    if (!place.direct)
        return {offset, offset + slice.bytes_per_expert};
    const WidenedRange range = widen_to_blocks(slice.extent(expert), block);
    return {offset - range.head, offset - range.head + range.length};
}

TEST(slot_layout, no_read_of_any_expert_touches_another_slice) {
    for (uint64_t seed = 1; seed <= 3000; ++seed) {
        SCOPED_TRACE(seed);
        Prng prng(seed);
        const uint64_t block = std::vector<uint64_t>{1, 512, 4096}[prng.below(3)];
        const ExpertTable table = random_table(prng, block);
        const auto layout = plan_slot_layout(table, block);
        ASSERT_TRUE(layout);
        ASSERT_EQ(layout->slot_bytes % block, 0u);
        ASSERT_EQ(layout->slot_bytes % 64, 0u);
        ASSERT_EQ(layout->layers.size(), table.layers.size());
        for (size_t l = 0; l < table.layers.size(); ++l) {
            const std::vector<ExpertSlice>& slices = table.layers[l].slices;
            const std::vector<SlotSlice>& places = layout->layers[l];
            ASSERT_EQ(places.size(), slices.size());
            for (uint32_t e = 0; e < table.experts_per_layer; ++e) {
                std::vector<std::pair<uint64_t, uint64_t>> ranges;
                for (size_t s = 0; s < slices.size(); ++s) {
                    if (block > 1) {
                        ASSERT_EQ(places[s].offset(ExpertIndex(e)) % 32, 0u);
                    }
                    ranges.push_back(written(slices[s], places[s], ExpertIndex(e), block));
                    if (places[s].direct) {
                        ASSERT_EQ(ranges.back().first % block, 0u);
                    }
                }
                std::sort(ranges.begin(), ranges.end());
                for (size_t i = 1; i < ranges.size(); ++i)
                    ASSERT_LE(ranges[i - 1].second, ranges[i].first);
                ASSERT_LE(ranges.back().second, layout->slot_bytes);
            }
        }
    }
}

TEST(slot_layout, wastes_at_most_two_blocks_per_direct_slice_and_a_cache_line_per_other) {
    for (uint64_t seed = 1; seed <= 1000; ++seed) {
        SCOPED_TRACE(seed);
        Prng prng(seed);
        const uint64_t block = prng.chance(1, 2) ? 512 : 4096;
        const ExpertTable table = random_table(prng, block);
        const auto layout = plan_slot_layout(table, block);
        ASSERT_TRUE(layout);
        uint64_t bound = 0;
        for (size_t l = 0; l < table.layers.size(); ++l) {
            uint64_t bytes = table.layers[l].bytes_per_expert();
            for (const SlotSlice& place : layout->layers[l])
                bytes += place.direct ? 2 * block : 64;
            bound = std::max(bound, bytes + block);
        }
        ASSERT_LE(layout->slot_bytes, bound);
    }
}

}  // namespace
}  // namespace bevy
