// Files that do not fit their architecture are refused with the tensor's name, before anything is
// loaded.
#include "compute/resident_weights.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compute/backend.h"
#include "compute/kv_cache.h"
#include "compute/testing/random_models.h"

namespace bevy {
namespace {

using testing::random_model;
using testing::small_shape;

using Edit = std::function<void(std::vector<RandomTensor>&)>;

Error describe_error(const std::string& architecture_name, const Edit& edit) {
    auto model =
        random_model(small_shape(architecture_name), 41, testing::all_of(GGML_TYPE_Q8_0), edit);
    auto file = ModelFile::open(model->path());
    EXPECT_TRUE(file);
    auto architecture = find_architecture(architecture_name);
    EXPECT_TRUE(architecture);
    auto shape = (*architecture)->read_shape(file->metadata());
    EXPECT_TRUE(shape);
    auto weights = ResidentWeights::describe(*file, **architecture, *shape, cpu_device());
    EXPECT_FALSE(weights);
    return weights ? Error{} : weights.error();
}

RandomTensor& named(std::vector<RandomTensor>& tensors, const std::string& name) {
    return *std::ranges::find(tensors, name, &RandomTensor::name);
}

TEST(ResidentWeights, NamesAMissingTensor) {
    for (const char* name :
         {"blk.2.attn_k.weight", "blk.1.ffn_up_exps.weight", "output_norm.weight"}) {
        Error error = describe_error("qwen3moe", [&](std::vector<RandomTensor>& tensors) {
            std::erase_if(tensors, [&](const RandomTensor& t) { return t.name == name; });
        });
        EXPECT_EQ(error.code, ErrorCode::kCorruptFile);
        EXPECT_NE(error.message.find(name), std::string::npos) << error.text();
    }
}

TEST(ResidentWeights, NamesATensorThatNobodyKnows) {
    Error error = describe_error("gpt-oss", [](std::vector<RandomTensor>& tensors) {
        tensors.push_back({"blk.0.attn_q_norm.weight", {64}, WeightKind::kNorm, 0});
    });
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_NE(error.message.find("blk.0.attn_q_norm.weight"), std::string::npos) << error.text();
}

TEST(ResidentWeights, NamesBothDimensions) {
    for (const char* name : {"blk.3.attn_q.weight", "blk.3.ffn_gate_exps.weight"}) {
        Error error = describe_error("qwen3moe", [&](std::vector<RandomTensor>& tensors) {
            named(tensors, name).dims[1] += 32;
        });
        EXPECT_EQ(error.code, ErrorCode::kCorruptFile);
        EXPECT_NE(error.message.find(name), std::string::npos) << error.text();
        EXPECT_NE(error.message.find("288"), std::string::npos) << error.text();
    }
}

TEST(ResidentWeights, RefusesAQuantisedRouter) {
    Error error = describe_error("qwen3moe", [](std::vector<RandomTensor>& tensors) {
        named(tensors, "blk.0.ffn_gate_inp.weight").kind = WeightKind::kMatrix;
    });
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_NE(error.message.find("Q8_0"), std::string::npos) << error.text();
}

TEST(KvTypes, AreParsedAndChecked) {
    ModelShape shape = small_shape("qwen3moe");
    auto types = parse_kv_types("q8_0", "f32", shape);
    ASSERT_TRUE(types);
    EXPECT_EQ(types->k, GGML_TYPE_Q8_0);
    EXPECT_EQ(types->v, GGML_TYPE_F32);
    auto unknown = parse_kv_types("f16", "q9", shape);
    ASSERT_FALSE(unknown);
    EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(unknown.error().message.find("--cache-type-v"), std::string::npos);
    shape.head_size_k = 48;
    auto uneven = parse_kv_types("q8_0", "f16", shape);
    ASSERT_FALSE(uneven);
    EXPECT_EQ(uneven.error().code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace bevy
