// memory_need() must cover what really is taken, since the planner gives the rest to expert slots.
#include <gtest/gtest.h>
#include <malloc.h>

#include "compute/backend.h"
#include "compute/testing/random_models.h"
#include "compute/testing/sync_driver.h"

namespace bevy {
namespace {

using testing::random_model;
using testing::small_shape;
using testing::SyncDriver;

uint64_t allocated_bytes() {
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

struct MemoryCase {
    const char* architecture;
    ggml_type type;
    uint32_t sequences;
    uint32_t lanes;
    uint32_t chunk_tokens;
    const char* cache_type;
    uint32_t guessed_layers = 0;
};

// NOLINTNEXTLINE(readability-identifier-naming): the name that GoogleTest looks for.
void PrintTo(const MemoryCase& c, std::ostream* out) {
    *out << c.architecture << ", " << c.sequences << " sequences, " << c.lanes << " lanes of "
         << c.chunk_tokens << ", guesses of " << c.guessed_layers << " layers";
}

class MemoryNeed : public ::testing::TestWithParam<MemoryCase> {};

TEST_P(MemoryNeed, CoversWhatIsTaken) {
    const MemoryCase& c = GetParam();
    auto model = random_model(small_shape(c.architecture), 31, testing::all_of(c.type));
    ComputeOptions options{.sequences = c.sequences,
                           .context_per_sequence = 600,
                           .chunk_tokens = c.chunk_tokens,
                           .prefill_lanes = c.lanes,
                           .threads = 2,
                           .type_k = c.cache_type,
                           .type_v = c.cache_type,
                           .guessed_layers = c.guessed_layers};
    load_backends();
    auto file = ModelFile::open(model->path());
    ASSERT_TRUE(file);
    auto architecture = find_architecture(c.architecture);
    ASSERT_TRUE(architecture);
    auto shape = (*architecture)->read_shape(file->metadata());
    ASSERT_TRUE(shape) << shape.error().text();
    auto need = GgmlCompute::memory_need(*file, **architecture, *shape, options);
    ASSERT_TRUE(need) << need.error().text();

    const uint64_t before = allocated_bytes();
    if (before == 0)
        GTEST_SKIP() << "this build's allocator does not count (a sanitizer's)";
    auto driver = SyncDriver::open(model->path(), options);
    ASSERT_TRUE(driver) << driver.error().text();
    Prng random(1);
    for (int round = 0; round < 2; round++) {
        std::vector<PassInput> passes;
        for (uint32_t seq = 0; seq < c.sequences; seq++) {
            size_t tokens = seq < c.lanes && round == 0 ? random.between(2, c.chunk_tokens) : 1;
            std::vector<TokenId> prompt;
            for (size_t i = 0; i < tokens; i++)
                prompt.push_back(static_cast<TokenId>(random.below(shape->vocabulary)));
            auto first = static_cast<uint32_t>(options.context_per_sequence - tokens);
            passes.push_back({SeqIndex(seq), prompt, first, true});
        }
        (*driver)->run(passes, round == 0 ? &random : nullptr);
    }
    const uint64_t taken = allocated_bytes() - before;
    const uint64_t slots = (*driver)->slot_memory_bytes();
    const uint64_t total = need->total((*driver)->slots());
    RecordProperty("need", std::to_string(total));
    RecordProperty("taken", std::to_string(taken - slots));
    EXPECT_LE(taken, total + slots);
    // An estimate of several times the truth would waste slots.
    EXPECT_LE(total, 2 * (taken - slots));
}

INSTANTIATE_TEST_SUITE_P(
    All, MemoryNeed,
    ::testing::Values(MemoryCase{"qwen3moe", GGML_TYPE_F16, 1, 1, 128, "f16"},
                      MemoryCase{"qwen3moe", GGML_TYPE_Q4_K, 16, 2, 256, "f16", 3},
                      MemoryCase{"gpt-oss", GGML_TYPE_MXFP4, 8, 3, 64, "f32", 1},
                      MemoryCase{"gpt-oss", GGML_TYPE_F32, 4, 1, 256, "q8_0"}));

}  // namespace
}  // namespace bevy
