#include "storage/slot_arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "base/units.h"

namespace bevy {
namespace {

TEST(slot_arena, slots_are_aligned_and_apart) {
    auto arena = SlotArena::create(8192, 100);
    ASSERT_TRUE(arena);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(arena->base()) % (2 * kMiB), 0u);
    EXPECT_EQ(arena->bytes(), 819'200u);
    for (uint32_t s = 0; s < 100; ++s) {
        EXPECT_EQ(arena->slot(SlotIndex(s)).data(), arena->base() + s * 8192);
        std::memset(arena->slot(SlotIndex(s)).data(), static_cast<int>(s), 8192);
    }
    EXPECT_EQ(arena->slot(SlotIndex(99)).back(), std::byte{99});
    EXPECT_EQ(arena->slot(SlotIndex(98)).back(), std::byte{98});
}

TEST(slot_arena, becomes_resident_on_request_and_keeps_contents) {
    auto arena = SlotArena::create(kMiB, 9);
    ASSERT_TRUE(arena);
    EXPECT_EQ(arena->resident_bytes(), 0u);
    arena->slot(SlotIndex(8))[5] = std::byte{7};
    EXPECT_GT(arena->resident_bytes(), 0u);
    ASSERT_TRUE(arena->populate());
    EXPECT_EQ(arena->resident_bytes(), arena->bytes());
    EXPECT_EQ(arena->slot(SlotIndex(8))[5], std::byte{7});
}

TEST(slot_arena, moving_keeps_the_memory) {
    auto arena = SlotArena::create(4096, 4);
    ASSERT_TRUE(arena);
    std::byte* base = arena->base();
    SlotArena moved = std::move(*arena);
    EXPECT_EQ(moved.base(), base);
    moved.slot(SlotIndex(3))[0] = std::byte{1};
}

TEST(slot_arena, refuses_what_cannot_be) {
    auto nothing = SlotArena::create(4096, 0);
    ASSERT_FALSE(nothing);
    EXPECT_EQ(nothing.error().code, ErrorCode::kInvalidArgument);
    for (uint64_t bytes : {uint64_t{1} << 46, uint64_t{1} << 62}) {
        auto huge = SlotArena::create(bytes, 1000);
        ASSERT_FALSE(huge);
        EXPECT_EQ(huge.error().code, ErrorCode::kBudget);
        EXPECT_FALSE(huge.error().hint.empty());
    }
}

TEST(slot_arena, names_the_cause_when_the_system_has_no_room) {
    auto huge = SlotArena::create(uint64_t{1} << 45, 1);
    ASSERT_FALSE(huge);
    EXPECT_EQ(huge.error().code, ErrorCode::kBudget);
    EXPECT_NE(huge.error().message.find("1 expert slots"), std::string::npos)
        << huge.error().text();
}

}  // namespace
}  // namespace bevy
