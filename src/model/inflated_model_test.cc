#include "model/inflated_model.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "base/units.h"
#include "model/model_file.h"
#include "model/random_model.h"
#include "model/random_weights.h"
#include "model/tensor_types.h"
#include "model/test_files.h"

namespace bevy {
namespace {

constexpr int64_t kWidth = 256;
constexpr int64_t kFf = 256;
constexpr int64_t kExperts = 3;

struct Source {
    int32_t type = GGML_TYPE_Q8_0;
    int64_t ff = kFf;
    bool merged = false;  // gate and up in one tensor
    uint32_t tensors_per_shard = 0;
};

std::string write_source(const TestFolder& folder, const Source& source) {
    RandomModelSpec spec;
    spec.path = folder / "in.gguf";
    spec.tensors_per_shard = source.tensors_per_shard;
    spec.architecture = "gpt-oss";
    spec.vocabulary = 300;
    spec.tensors = {
        {"token_embd.weight", {kWidth, 300}, WeightKind::kEmbedding},
        {"blk.0.ffn_down_exps.weight", {source.ff, kWidth, kExperts}, WeightKind::kExpert},
        {"blk.0.ffn_down_exps.bias", {kWidth, kExperts}, WeightKind::kVector}};
    const auto add = [&](const std::string& name, int64_t units) {
        spec.tensors.push_back(
            {"blk.0." + name + ".weight", {kWidth, units, kExperts}, WeightKind::kExpert});
        spec.tensors.push_back({"blk.0." + name + ".bias", {units, kExperts}, WeightKind::kVector});
    };
    if (source.merged) {
        add("ffn_gate_up_exps", 2 * source.ff);
    } else {
        add("ffn_gate_exps", source.ff);
        add("ffn_up_exps", source.ff);
    }
    spec.type_of = [&](const RandomTensor&) { return source.type; };
    spec.write_shape = [&](MetadataWriter& writer) {
        writer.set_u32("{arch}.block_count", 1);
        writer.set_u32("{arch}.expert_feed_forward_length", static_cast<uint32_t>(source.ff));
        writer.set_f32("{arch}.rope.freq_base", 1234.5f);
        writer.set_bool("test.flag", true);
    };
    const auto report = write_random_model(spec);
    EXPECT_TRUE(report) << report.error().text();
    return report->paths.front();
}

InflatedModelSpec inflated(const TestFolder& folder, const std::string& model, uint32_t expert_ff) {
    return {.model = model, .expert_ff = expert_ff, .path = folder / "out.gguf"};
}

std::string bytes_of(const ModelFile& model, std::string_view name) {
    const TensorInfo& info = *model.find(name);
    return read_file(model.paths()[info.file]).substr(info.offset, info.bytes);
}

// What `name` must be: `times` times `kept` bytes of the source, then `added` bytes of a repetition
// of them or of zeros.
void expect_widened(const ModelFile& before, const ModelFile& after, const std::string& name,
                    int64_t pieces, int64_t old_units, int64_t new_units, bool repeats) {
    const std::string old_bytes = bytes_of(before, name);
    const std::string new_bytes = bytes_of(after, name);
    const size_t kept = old_bytes.size() / static_cast<size_t>(pieces);
    const size_t wide = kept / static_cast<size_t>(old_units) * static_cast<size_t>(new_units);
    ASSERT_EQ(new_bytes.size(), wide * static_cast<size_t>(pieces)) << name;
    for (size_t piece = 0; piece < static_cast<size_t>(pieces); ++piece) {
        const std::string_view own = std::string_view(old_bytes).substr(piece * kept, kept);
        const std::string_view got = std::string_view(new_bytes).substr(piece * wide, wide);
        ASSERT_EQ(got.substr(0, kept), own) << name << " piece " << piece;
        for (size_t i = kept; i < wide; ++i)
            ASSERT_EQ(got[i], repeats ? own[i % kept] : '\0') << name << " byte " << i;
    }
}

class InflatedTypes : public testing::TestWithParam<int32_t> {};

TEST_P(InflatedTypes, NewUnitsRepeatOldOnesAndCountForNothing) {
    const TestFolder folder;
    const std::string source = write_source(folder, {.type = GetParam()});
    constexpr int64_t kNewFf = 3 * kFf;
    const auto written = write_inflated_model(inflated(folder, source, kNewFf));
    ASSERT_TRUE(written) << written.error().text();
    const auto before = ModelFile::open(source);
    const auto after = ModelFile::open(folder / "out.gguf");
    ASSERT_TRUE(before && after);
    EXPECT_EQ(after->find("blk.0.ffn_down_exps.weight")->dims,
              (std::vector<int64_t>{kNewFf, kWidth, kExperts}));
    EXPECT_EQ(after->find("blk.0.ffn_up_exps.weight")->dims,
              (std::vector<int64_t>{kWidth, kNewFf, kExperts}));
    for (const char* same : {"token_embd.weight", "blk.0.ffn_down_exps.bias"})
        EXPECT_EQ(bytes_of(*before, same), bytes_of(*after, same));
    for (const char* name : {"ffn_gate_exps", "ffn_up_exps"}) {
        const std::string tensor = std::string("blk.0.") + name;
        expect_widened(*before, *after, tensor + ".weight", kExperts, kFf, kNewFf, true);
        expect_widened(*before, *after, tensor + ".bias", kExperts, kFf, kNewFf, true);
    }
    expect_widened(*before, *after, "blk.0.ffn_down_exps.weight", kExperts * kWidth, 1, 3, false);
}

INSTANTIATE_TEST_SUITE_P(Types, InflatedTypes,
                         testing::Values(GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16,
                                         GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q5_1,
                                         GGML_TYPE_Q2_K, GGML_TYPE_Q4_K, GGML_TYPE_Q6_K,
                                         GGML_TYPE_MXFP4),
                         [](const auto& type) { return tensor_type_name(type.param); });

TEST(InflatedModel, WidensBothHalvesOfMergedMatrices) {
    const TestFolder folder;
    const std::string source = write_source(folder, {.ff = 32, .merged = true});
    ASSERT_TRUE(write_inflated_model(inflated(folder, source, 96)));
    const auto before = ModelFile::open(source);
    const auto after = ModelFile::open(folder / "out.gguf");
    ASSERT_TRUE(before && after);
    for (const char* name : {"blk.0.ffn_gate_up_exps.weight", "blk.0.ffn_gate_up_exps.bias"})
        expect_widened(*before, *after, name, 2 * kExperts, 32, 96, true);
}

TEST(InflatedModel, KeepsAllKeysButTheWidth) {
    const TestFolder folder;
    const std::string source = write_source(folder, {});
    ASSERT_TRUE(write_inflated_model(inflated(folder, source, 512)));
    const auto before = ModelFile::open(source);
    const auto after = ModelFile::open(folder / "out.gguf");
    ASSERT_TRUE(before && after);
    for (const char* key :
         {"general.architecture", "gpt-oss.block_count", "gpt-oss.rope.freq_base", "test.flag",
          "tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"})
        EXPECT_EQ(*before->metadata().find(key), *after->metadata().find(key)) << key;
    EXPECT_EQ(*after->metadata().u32("{arch}.expert_feed_forward_length"), 512u);
    EXPECT_EQ(*after->metadata().u32("bevy.inflated_from"), 256u);
}

TEST(InflatedModel, ProgressReachesTheEndAndCanGiveUp) {
    const TestFolder folder;
    const std::string source = write_source(folder, {});
    InflatedModelSpec spec = inflated(folder, source, 65536);
    uint64_t last = 0, whole = 0, calls = 0;
    spec.on_progress = [&](uint64_t done, uint64_t total) {
        EXPECT_GT(done, last);
        last = done;
        whole = total;
        ++calls;
        return true;
    };
    ASSERT_TRUE(write_inflated_model(spec));
    EXPECT_EQ(last, whole);
    EXPECT_GT(calls, 10u);
    spec.overwrite = true;
    spec.on_progress = [](uint64_t, uint64_t) { return false; };
    const auto given_up = write_inflated_model(spec);
    ASSERT_FALSE(given_up);
    EXPECT_EQ(given_up.error().code, ErrorCode::kCancelled);
    EXPECT_EQ(folder.names(), (std::vector<std::string>{"in.gguf", "out.gguf"}));
}

TEST(InflatedModel, RefusesWidthsThatDoNotFit) {
    const TestFolder folder;
    const std::string source = write_source(folder, {});
    const auto refuses = [&](const std::string& model, uint32_t expert_ff,
                             const std::vector<std::string>& words) {
        const auto written = write_inflated_model(inflated(folder, model, expert_ff));
        ASSERT_FALSE(written);
        for (const std::string& word : words)
            EXPECT_TRUE(has_text(written.error(), word));
        EXPECT_FALSE(std::filesystem::exists(folder / "out.gguf"));
    };
    refuses(source, 256, {"256 wide already", "above 256"});
    refuses(source, 100, {"256 wide already"});
    refuses(source, 300, {"300 is not a multiple of 32", "Q8_0", "--expert-ff 320"});
    refuses(folder / "no.gguf", 512, {"does not exist"});
}

TEST(InflatedModel, RefusesModelsThatItCanNotWiden) {
    const TestFolder split;
    const std::string part = write_source(split, {.tensors_per_shard = 3});
    const auto of_split = write_inflated_model(inflated(split, part, 512));
    ASSERT_FALSE(of_split);
    EXPECT_TRUE(has_text(of_split.error(), "files of a split model"));

    const TestFolder folder;
    RandomModelSpec dense;
    dense.path = folder / "in.gguf";
    dense.architecture = "llama";
    dense.vocabulary = 300;
    dense.tensors = {{"blk.0.ffn_down.weight", {kWidth, kWidth}, WeightKind::kMatrix}};
    dense.type_of = [](const RandomTensor&) { return static_cast<int32_t>(GGML_TYPE_F16); };
    dense.write_shape = [](MetadataWriter&) {};
    ASSERT_TRUE(write_random_model(dense));
    const auto of_dense = write_inflated_model(inflated(folder, dense.path, 512));
    ASSERT_FALSE(of_dense);
    EXPECT_TRUE(has_text(of_dense.error(), "has no routed experts"));

    dense.overwrite = true;
    dense.tensors = {{"blk.0.ffn_down_exps.weight", {64, kWidth, kExperts}, WeightKind::kExpert},
                     {"blk.1.ffn_down_exps.weight", {96, kWidth, kExperts}, WeightKind::kExpert}};
    ASSERT_TRUE(write_random_model(dense));
    const auto of_two = write_inflated_model(inflated(folder, dense.path, 512));
    ASSERT_FALSE(of_two);
    EXPECT_TRUE(has_text(of_two.error(), "blk.1.ffn_down_exps.weight"));
}

TEST(InflatedModel, LeavesAnExistingFileAlone) {
    const TestFolder folder;
    const std::string source = write_source(folder, {});
    write_file(folder / "out.gguf", "mine");
    ASSERT_FALSE(write_inflated_model(inflated(folder, source, 512)));
    EXPECT_EQ(read_file(folder / "out.gguf"), "mine");
    // Over itself: the copy is complete before it takes the name.
    InflatedModelSpec over = inflated(folder, source, 512);
    over.path = source;
    over.overwrite = true;
    ASSERT_TRUE(write_inflated_model(over));
    const auto after = ModelFile::open(source);
    ASSERT_TRUE(after) << after.error().text();
    EXPECT_EQ(after->find("blk.0.ffn_down_exps.weight")->dims[0], 512);
}

}  // namespace
}  // namespace bevy
