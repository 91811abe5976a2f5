#include "engine/memory_plan.h"

#include <gtest/gtest.h>

#include "base/units.h"

namespace bevy {
namespace {

// 100 MiB besides the experts; 64 experts of 10 MiB.
MemoryDemand demand(uint64_t budget_mib) {
    return {.budget_bytes = budget_mib * kMiB,
            .resident_bytes = 40 * kMiB,
            .kv_bytes_per_sequence = 5 * kMiB,
            .sequences = 2,
            .context_per_sequence = 4096,
            .work_bytes = 20 * kMiB,
            .bounce_bytes = 10 * kMiB,
            .program_bytes = 20 * kMiB,
            .slot_bytes = 10 * kMiB,
            .expert_count = 64,
            .experts_used = 4};
}

TEST(MemoryPlan, SlotsGetWhatIsLeft) {
    const Result<MemoryPlan> plan = plan_memory(demand(100 + 305));
    ASSERT_TRUE(plan) << plan.error().text();
    EXPECT_EQ(plan->slots, 30u);
    EXPECT_EQ(plan->kv_bytes, 10 * kMiB);
    EXPECT_EQ(plan->total_bytes, 400 * kMiB);
    EXPECT_EQ(plan->unused_bytes, 5 * kMiB);
    EXPECT_TRUE(plan->warnings.empty());
}

TEST(MemoryPlan, MoreThanAllExpertsAreNotKept) {
    const Result<MemoryPlan> plan = plan_memory(demand(100'000));
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->slots, 64u);
}

TEST(MemoryPlan, TheSmallestBudgetWorksAndOneByteLessDoesNot) {
    for (const char* cache : {"rest", "50%", "100%", "95MiB", "400MiB"}) {
        MemoryDemand d = demand(1);
        d.cache = *parse_cache_size(cache);
        d.budget_bytes = smallest_budget(d);
        EXPECT_TRUE(plan_memory(d)) << cache;
        d.budget_bytes--;
        const Result<MemoryPlan> plan = plan_memory(d);
        ASSERT_FALSE(plan) << cache;
        EXPECT_EQ(plan.error().code, ErrorCode::kBudget);
    }
}

TEST(MemoryPlan, ARefusalNamesABudgetThatWorks) {
    MemoryDemand d = demand(120);
    Result<MemoryPlan> plan = plan_memory(d);
    ASSERT_FALSE(plan);
    EXPECT_TRUE(plan.error().hint.contains("140MiB")) << plan.error().hint;
    d.budget_bytes = *parse_bytes("140MiB");
    plan = plan_memory(d);
    ASSERT_TRUE(plan);
    EXPECT_EQ(plan->slots, 4u);
}

TEST(MemoryPlan, ACacheOfAnExplicitSizeIsKeptTo) {
    MemoryDemand d = demand(1000);
    d.cache = *parse_cache_size("95MiB");
    EXPECT_EQ(plan_memory(d)->slots, 9u);
    d.cache = *parse_cache_size("12.5%");
    EXPECT_EQ(plan_memory(d)->slots, 8u);
    d.cache = *parse_cache_size("100%");
    EXPECT_EQ(plan_memory(d)->slots, 64u);
}

TEST(MemoryPlan, ACacheThatDoesNotFitIsRefusedWithOneThatWould) {
    MemoryDemand d = demand(400);
    d.cache = *parse_cache_size("100%");
    const Result<MemoryPlan> plan = plan_memory(d);
    ASSERT_FALSE(plan);
    EXPECT_TRUE(plan.error().hint.contains("740MiB")) << plan.error().hint;
    EXPECT_TRUE(plan.error().hint.contains(format_bytes(300 * kMiB))) << plan.error().hint;
}

TEST(MemoryPlan, ACacheBelowOneTokensExpertsIsRefusedWhateverTheBudget) {
    MemoryDemand d = demand(10'000);
    d.cache = *parse_cache_size("35MiB");
    const Result<MemoryPlan> plan = plan_memory(d);
    ASSERT_FALSE(plan);
    EXPECT_TRUE(plan.error().message.contains("holds 3 experts")) << plan.error().message;
    d.cache = *parse_cache_size("40MiB");
    EXPECT_TRUE(plan_memory(d));
}

TEST(MemoryPlan, FewSlotsPerSequenceAreWarnedOf) {
    // 3 slots for each of 2 sequences.
    EXPECT_EQ(plan_memory(demand(100 + 50))->warnings.size(), 1u);
    EXPECT_TRUE(plan_memory(demand(100 + 60))->warnings.empty());
    // A warning that names a larger cache than the model has would be silly.
    MemoryDemand d = demand(100 + 640);
    d.sequences = 32;
    d.kv_bytes_per_sequence = 0;
    EXPECT_TRUE(plan_memory(d)->warnings.empty());
}

TEST(MemoryPlan, TheTableAddsUp) {
    const MemoryPlan plan = *plan_memory(demand(405));
    const std::vector<MemoryRow> rows = memory_rows(plan);
    uint64_t sum = 0;
    for (size_t i = 0; i + 2 < rows.size(); i++)
        sum += rows[i].bytes;
    EXPECT_EQ(sum, rows[rows.size() - 2].bytes);
    EXPECT_EQ(sum + rows.back().bytes, plan.demand.budget_bytes);
    EXPECT_EQ(rows[2].note, "2 sequences of 4096 tokens");
    EXPECT_TRUE(rows[5].note.contains("30 of 64 experts (46.9 %)")) << rows[5].note;
}

TEST(MemoryPlan, ADemandWithoutSlotsIsRefused) {
    MemoryDemand d = demand(400);
    d.slot_bytes = 0;
    EXPECT_EQ(plan_memory(d).error().code, ErrorCode::kInvalidArgument);
    d = demand(400);
    d.experts_used = 65;
    EXPECT_EQ(plan_memory(d).error().code, ErrorCode::kInvalidArgument);
}

TEST(MemoryPlan, CacheSizesAreReadOrRefusedByName) {
    EXPECT_EQ(parse_cache_size("rest")->kind, CacheSize::Kind::kRest);
    EXPECT_EQ(parse_cache_size("12.5%")->value, 1250u);
    EXPECT_EQ(parse_cache_size("2GiB")->value, 2 * kGiB);
    for (const char* text : {"", "%", "0%", "101%", "-5%", "nan%", "12x%", "lots", "GiB"}) {
        const Result<CacheSize> size = parse_cache_size(text);
        ASSERT_FALSE(size) << text;
        EXPECT_TRUE(size.error().message.contains("'" + std::string(text) + "'"));
    }
}

}  // namespace
}  // namespace bevy
