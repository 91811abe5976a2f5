#include "engine/stats.h"

#include <gtest/gtest.h>

#include <cstring>

namespace bevy {
namespace {

EngineStats some_stats() {
    EngineStats stats;
    stats.core.expert_hits = 6;
    stats.core.expert_joins = 1;
    stats.core.expert_misses = 3;
    stats.core.steps = 12;
    stats.core.idle_steps = 2;
    stats.core.step_sequences = 25;
    stats.core.compute_busy = milliseconds(1500);
    stats.core.link_busy = milliseconds(500);
    stats.core.stall = milliseconds(250);
    stats.link_bytes = 1'000;
    stats.tokens_prompt = 10;
    stats.tokens_generated = 40;
    stats.active = milliseconds(2000);
    stats.wall = milliseconds(3000);
    stats.group_sizes = {2, 0, 5, 5};
    return stats;
}

TEST(EngineStats, RatiosFollowTheirDefinitions) {
    const EngineStats stats = some_stats();
    EXPECT_DOUBLE_EQ(stats.compute_utilisation(), 0.75);
    EXPECT_DOUBLE_EQ(stats.link_utilisation(), 0.25);
    EXPECT_DOUBLE_EQ(stats.stall_share(), 0.125);
    EXPECT_DOUBLE_EQ(stats.hit_rate(), 0.6);
    EXPECT_DOUBLE_EQ(stats.group_size_mean(), 2.5);
    EXPECT_DOUBLE_EQ(stats.tokens_per_second(), 20);
    EXPECT_DOUBLE_EQ(stats.link_bytes_per_second(), 2'000);
    EXPECT_DOUBLE_EQ(stats.link_bytes_per_token(), 20);
}

TEST(EngineStats, NothingHappenedIsNoDivisionByZero) {
    const EngineStats stats;
    EXPECT_EQ(stats.hit_rate(), 0);
    EXPECT_EQ(stats.group_size_mean(), 0);
    EXPECT_EQ(stats.tokens_per_second(), 0);
    for (const StatRow& row : stat_rows(stats))
        EXPECT_FALSE(row.value.contains("nan") || row.value.contains("inf")) << row.name;
}

TEST(EngineStats, TheDifferenceToItselfIsNothingInEveryField) {
    // CoreStats consists of 64-bit numbers only: fill each with something, so that one which
    // since() forgot would show.
    EngineStats stats = some_stats();
    static_assert(sizeof(CoreStats) % sizeof(uint64_t) == 0);
    uint64_t numbers[sizeof(CoreStats) / sizeof(uint64_t)];
    for (size_t i = 0; i < std::size(numbers); i++)
        numbers[i] = 100 + i;
    std::memcpy(&stats.core, numbers, sizeof numbers);
    stats.steps_failed = 3;
    stats.sampling = milliseconds(7);

    const EngineStats nothing = stats.since(stats);
    std::memcpy(numbers, &nothing.core, sizeof numbers);
    for (size_t i = 0; i < std::size(numbers); i++)
        EXPECT_EQ(numbers[i], 0u) << "number " << i;
    EXPECT_EQ(nothing.link_bytes + nothing.tokens_prompt + nothing.tokens_generated +
                  nothing.steps_failed,
              0u);
    EXPECT_EQ(nothing.wall.ns + nothing.active.ns + nothing.sampling.ns, 0);
    EXPECT_EQ(nothing.group_sizes, std::vector<uint64_t>(4));
}

TEST(EngineStats, TheTableShowsTheHistogram) {
    const std::vector<StatRow> rows = stat_rows(some_stats());
    const auto row = std::ranges::find(rows, "group sizes (size:steps)", &StatRow::name);
    ASSERT_NE(row, rows.end());
    EXPECT_EQ(row->value, "2:5 3:5");
}

}  // namespace
}  // namespace bevy
