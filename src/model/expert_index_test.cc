#include "model/expert_index.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include "model/gguf_writer.h"
#include "model/test_files.h"

namespace bevy {
namespace {

using Names = std::vector<std::vector<std::string>>;

struct Tensor {
    std::string name;
    int32_t type;
    std::vector<int64_t> dims;
};

class ExpertIndexTest : public testing::Test {
protected:
    ModelFile model_of(const std::vector<Tensor>& tensors, uint32_t tensors_per_shard = 0) {
        GgufWriter writer({.path = folder_ / "m.gguf",
                           .architecture = "x",
                           .overwrite = true,
                           .tensors_per_shard = tensors_per_shard});
        for (const Tensor& tensor : tensors)
            EXPECT_TRUE(writer.add_tensor(tensor.name, tensor.type, tensor.dims));
        EXPECT_TRUE(writer.begin_data());
        EXPECT_TRUE(writer.write(std::vector<std::byte>(writer.data_bytes())));
        EXPECT_TRUE(writer.finish());
        Result<ModelFile> model = ModelFile::open(writer.paths()[0]);
        EXPECT_TRUE(model);
        return std::move(*model);
    }

    TestFolder folder_;
};

TEST_F(ExpertIndexTest, FindsEveryExpertOfMixedLayersOverFiles) {
    const ModelFile model = model_of({{"up.0", GGML_TYPE_Q8_0, {64, 32, 3}},
                                      {"down.0", GGML_TYPE_Q5_0, {32, 64, 3}},
                                      {"up.1", GGML_TYPE_Q4_0, {64, 32, 3}},
                                      {"down.1", GGML_TYPE_F16, {32, 64, 3}}},
                                     3);
    const auto indexed = index_experts(model, Names{{"up.0", "down.0"}, {"up.1", "down.1"}}, 3);
    ASSERT_TRUE(indexed) << indexed.error().text();
    const ExpertTable& table = indexed->table;
    EXPECT_EQ(table.experts_per_layer, 3u);
    ASSERT_EQ(table.layers.size(), 2u);
    const ExpertSlice& up = table.layers[0].slices[0];
    EXPECT_EQ(up.bytes_per_expert, 32u * 68);
    EXPECT_EQ(up.offset, model.find("up.0")->offset);
    EXPECT_EQ(up.extent(ExpertIndex(2)).offset, up.offset + 2 * 32 * 68);
    const ExpertSlice& down = table.layers[1].slices[1];
    EXPECT_EQ(down.file, 1u);
    EXPECT_EQ(down.bytes_per_expert, 64u * 64);
    EXPECT_EQ(table.layers[0].bytes_per_expert(), 32u * 68 + 64 * 22);

    const ExpertSliceInfo& info = indexed->slices[1][0];
    EXPECT_EQ(info.type, GGML_TYPE_Q4_0);
    EXPECT_EQ(info.ne0, 64);
    EXPECT_EQ(info.ne1, 32);
    EXPECT_EQ(info.row_bytes, 36u);
}

TEST_F(ExpertIndexTest, AcceptsOneExpert) {
    const ModelFile model = model_of({{"up", GGML_TYPE_F32, {8, 4, 1}}});
    const auto indexed = index_experts(model, Names{{"up"}}, 1);
    ASSERT_TRUE(indexed) << indexed.error().text();
    EXPECT_EQ(indexed->table.layers[0].slices[0].bytes_per_expert, 128u);
}

TEST_F(ExpertIndexTest, RefusesContradictions) {
    const ModelFile model = model_of({{"a", GGML_TYPE_F32, {8, 4, 3}},
                                      {"b", GGML_TYPE_F32, {8, 4, 5}},
                                      {"c", GGML_TYPE_F32, {8, 6, 3}},
                                      {"d", GGML_TYPE_F32, {8, 4, 3, 2}}});
    const auto error = [&](const Names& names, uint32_t experts) {
        const auto indexed = index_experts(model, names, experts);
        return indexed ? Error{ErrorCode::kCancelled, "indexed", ""} : indexed.error();
    };
    EXPECT_TRUE(has_text(error({{"a"}, {"a"}}, 3), "indexed"));
    EXPECT_EQ(error({{"a"}, {"none"}}, 3).code, ErrorCode::kNotFound);
    EXPECT_TRUE(has_text(error({{"a"}, {"none"}}, 3), "has no tensor 'none'"));
    EXPECT_TRUE(has_text(error({{"a"}, {"b"}}, 3), "'b'"));
    EXPECT_TRUE(has_text(error({{"a"}, {"b"}}, 3), "8 x 4 x 5, expected 3 experts"));
    EXPECT_TRUE(has_text(error({{"a"}, {"c"}}, 3), "are 8 x 6, but those of 'a' are 8 x 4"));
    EXPECT_EQ(error({{"d"}}, 3).code, ErrorCode::kCorruptFile);
    EXPECT_EQ(error({{"a"}}, 0).code, ErrorCode::kUnsupported);
    EXPECT_EQ(error({}, 3).code, ErrorCode::kUnsupported);
}

}  // namespace
}  // namespace bevy
