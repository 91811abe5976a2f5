#include "model/metadata.h"

#include <gtest/gtest.h>

#include <limits>

#include "model/test_files.h"

namespace bevy {
namespace {

Metadata sample() {
    return Metadata("model.gguf", {{"general.architecture", std::string("qwen3moe")},
                                   {"qwen3moe.block_count", uint64_t{48}},
                                   {"qwen3moe.signed", int64_t{7}},
                                   {"negative", int64_t{-1}},
                                   {"large", uint64_t{1} << 32},
                                   {"epsilon", 1e-6},
                                   {"infinite", std::numeric_limits<double>::infinity()},
                                   {"huge", 1e300},
                                   {"flag", true},
                                   {"same", std::vector<uint64_t>{4, 4, 4}},
                                   {"same_signed", std::vector<int64_t>{4, 4}},
                                   {"different", std::vector<uint64_t>{4, 8}},
                                   {"below_zero", std::vector<int64_t>{-4, -4}},
                                   {"empty", std::vector<uint64_t>{}},
                                   {"texts", std::vector<std::string>{"a"}}});
}

TEST(Metadata, ReadsValuesWithTypes) {
    const Metadata metadata = sample();
    EXPECT_EQ(metadata.u32("qwen3moe.block_count"), 48u);
    EXPECT_EQ(metadata.u32("qwen3moe.signed"), 7u);
    EXPECT_EQ(metadata.f32("epsilon"), 1e-6f);
    EXPECT_EQ(metadata.str("general.architecture"), "qwen3moe");
    EXPECT_EQ(metadata.flag_or("flag", false), true);
    EXPECT_TRUE(metadata.has("flag"));
    EXPECT_FALSE(metadata.has("absent"));
    EXPECT_EQ(metadata.find("absent"), nullptr);
}

TEST(Metadata, ReplacesArchitectureInKeys) {
    EXPECT_EQ(sample().u32("{arch}.block_count"), 48u);
    const auto missing = sample().u32("{arch}.nothing");
    ASSERT_FALSE(missing);
    EXPECT_TRUE(has_text(missing.error(), "'qwen3moe.nothing'"));
    EXPECT_FALSE(Metadata("f", {}).u32("{arch}.block_count"));
}

TEST(Metadata, MissingKeyNamesKeyAndFile) {
    const auto value = sample().f32("absent");
    ASSERT_FALSE(value);
    EXPECT_EQ(value.error().code, ErrorCode::kNotFound);
    EXPECT_TRUE(has_text(value.error(), "'model.gguf' has no metadata key 'absent'"));
    EXPECT_FALSE(sample().str("absent"));
    EXPECT_FALSE(sample().u32_per_layer("absent"));
}

TEST(Metadata, DefaultsAreForAbsentKeysOnly) {
    const Metadata metadata = sample();
    EXPECT_EQ(metadata.u32_or("absent", 3), 3u);
    EXPECT_EQ(metadata.f32_or("absent", 0.5f), 0.5f);
    EXPECT_EQ(metadata.flag_or("absent", true), true);
    EXPECT_EQ(metadata.str_or("absent", "x"), "x");
    EXPECT_EQ(metadata.u32_or("{arch}.block_count", 3), 48u);
    EXPECT_FALSE(metadata.u32_or("epsilon", 3));
    EXPECT_FALSE(metadata.f32_or("flag", 1));
    EXPECT_FALSE(metadata.flag_or("epsilon", true));
    EXPECT_FALSE(metadata.str_or("flag", "x"));
}

TEST(Metadata, WrongTypesAndRangesAreErrors) {
    const Metadata metadata = sample();
    const auto large = metadata.u32("large");
    ASSERT_FALSE(large);
    EXPECT_EQ(large.error().code, ErrorCode::kCorruptFile);
    EXPECT_TRUE(has_text(large.error(),
                         "'large' of 'model.gguf' is an unsigned integer (4294967296), expected a "
                         "32-bit unsigned integer"));
    EXPECT_FALSE(metadata.u32("negative"));
    EXPECT_FALSE(metadata.u32("general.architecture"));
    EXPECT_FALSE(metadata.f32("infinite"));
    EXPECT_FALSE(metadata.f32("huge"));
    EXPECT_FALSE(metadata.str("texts"));
}

TEST(Metadata, PerLayerNumbersMustAgree) {
    const Metadata metadata = sample();
    EXPECT_EQ(metadata.u32_per_layer("same"), 4u);
    EXPECT_EQ(metadata.u32_per_layer("same_signed"), 4u);
    EXPECT_EQ(metadata.u32_per_layer("{arch}.block_count"), 48u);
    const auto different = metadata.u32_per_layer("different");
    ASSERT_FALSE(different);
    EXPECT_EQ(different.error().code, ErrorCode::kUnsupported);
    EXPECT_TRUE(has_text(different.error(), "differs between layers (4 and 8)"));
    EXPECT_FALSE(metadata.u32_per_layer("empty"));
    EXPECT_FALSE(metadata.u32_per_layer("below_zero"));
    EXPECT_FALSE(metadata.u32_per_layer("texts"));
}

}  // namespace
}  // namespace bevy
