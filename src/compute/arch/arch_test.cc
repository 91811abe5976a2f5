// Shapes survive the way through a file's keys, and impossible ones are refused with the key's
// name.
#include "compute/arch/arch.h"

#include <gtest/gtest.h>

#include <map>

#include "compute/testing/random_models.h"

namespace bevy {
namespace {

using testing::small_shape;

class MapWriter final : public MetadataWriter {
public:
    explicit MapWriter(const std::string& architecture) : architecture_(architecture) {
        values["general.architecture"] = architecture;
    }
    void set_u32(std::string_view key, uint32_t value) override {
        values[expand(key)] = static_cast<uint64_t>(value);
    }
    void set_f32(std::string_view key, float value) override {
        values[expand(key)] = static_cast<double>(value);
    }
    void set_bool(std::string_view key, bool value) override { values[expand(key)] = value; }
    void set_str(std::string_view key, std::string_view value) override {
        values[expand(key)] = std::string(value);
    }
    void set_i32_array(std::string_view key, std::span<const int32_t> items) override {
        values[expand(key)] = std::vector<int64_t>(items.begin(), items.end());
    }

    std::map<std::string, MetadataValue, std::less<>> values;

private:
    std::string expand(std::string_view key) const {
        std::string name(key);
        if (name.starts_with("{arch}"))
            name.replace(0, 6, architecture_);
        return name;
    }

    std::string architecture_;
};

MapWriter keys_of(const ModelShape& shape) {
    MapWriter writer(shape.architecture);
    (*find_architecture(shape.architecture))->write_shape(shape, writer);
    return writer;
}

Result<ModelShape> read(const MapWriter& writer) {
    Metadata metadata("a.gguf", writer.values);
    return (*find_architecture(*metadata.str("general.architecture")))->read_shape(metadata);
}

TEST(Architectures, ShapesSurviveTheirKeys) {
    for (const Architecture& architecture : architectures()) {
        const ModelShape shape = small_shape(std::string(architecture.name));
        auto result = read(keys_of(shape));
        ASSERT_TRUE(result) << result.error().text();
        EXPECT_EQ(result->layers, shape.layers);
        EXPECT_EQ(result->embedding, shape.embedding);
        EXPECT_EQ(result->vocabulary, shape.vocabulary);
        EXPECT_EQ(result->heads_kv, shape.heads_kv);
        EXPECT_EQ(result->head_size_v, shape.head_size_v);
        EXPECT_EQ(result->experts, shape.experts);
        EXPECT_EQ(result->experts_used, shape.experts_used);
        EXPECT_EQ(result->expert_ff, shape.expert_ff);
        EXPECT_EQ(result->sliding_window, shape.sliding_window);
        EXPECT_EQ(result->rope_base, shape.rope_base);
        EXPECT_FLOAT_EQ(result->rope_scale, shape.rope_scale);
        EXPECT_EQ(result->rope_yarn_ext_factor, shape.rope_yarn_ext_factor);
        EXPECT_NEAR(result->rope_yarn_attn_factor, 1.0f, 1e-6f);
        EXPECT_EQ(result->norm_epsilon, shape.norm_epsilon);
    }
}

TEST(Architectures, ImpossibleShapesAreRefused) {
    struct Case {
        const char* key;
        uint64_t value;
    };
    for (Case c :
         {Case{"qwen3moe.expert_used_count", 9}, Case{"qwen3moe.block_count", 0},
          Case{"qwen3moe.embedding_length", 1u << 31}, Case{"qwen3moe.attention.head_count_kv", 3},
          Case{"qwen3moe.rope.dimension_count", 65}, Case{"qwen3moe.attention.head_count", 0}}) {
        MapWriter writer = keys_of(small_shape("qwen3moe"));
        writer.values[c.key] = c.value;
        auto result = read(writer);
        EXPECT_FALSE(result) << c.key << " = " << c.value;
    }
    MapWriter writer = keys_of(small_shape("gpt-oss"));
    writer.values.erase("gpt-oss.attention.sliding_window");
    auto result = read(writer);
    ASSERT_FALSE(result);
    EXPECT_NE(result.error().message.find("sliding_window"), std::string::npos);
    // ggml would abort on the first, and compute garbage with the others.
    for (const char* key : {"qwen3moe.attention.layer_norm_rms_epsilon", "qwen3moe.rope.freq_base",
                            "qwen3moe.rope.scaling.factor"}) {
        writer = keys_of(small_shape("qwen3moe"));
        writer.values[key] = -1.0;
        EXPECT_FALSE(read(writer)) << key;
    }
    writer = keys_of(small_shape("qwen3moe"));
    writer.values["qwen3moe.rope.scaling.type"] = std::string("longrope");
    EXPECT_FALSE(read(writer));
}

TEST(Architectures, UnknownNamesListTheKnownOnes) {
    auto result = find_architecture("llama");
    ASSERT_FALSE(result);
    EXPECT_EQ(result.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(result.error().hint.find("qwen3moe, gpt-oss"), std::string::npos);
}

}  // namespace
}  // namespace bevy
