#include "compute/arch/common.h"

#include <algorithm>
#include <cmath>

namespace bevy {

namespace {

// Far above any real model, and small enough that products of two never overflow 64 bits.
constexpr uint32_t kSizeMax = 1u << 24;

std::unexpected<Error> bad_value(const Metadata& metadata, std::string_view key, uint64_t value,
                                 const std::string& expected) {
    return fail(ErrorCode::kCorruptFile, "key '" + std::string(key) + "' of " + metadata.path() +
                                             " is " + std::to_string(value) + ", expected " +
                                             expected);
}

// Collects values until the first error, which it keeps.
class Reader {
public:
    explicit Reader(const Metadata& metadata) : metadata_(metadata) {}

    uint32_t size(std::string_view key, Result<uint32_t> value) {
        if (!keep(value))
            return 1;
        if (*value >= 1 && *value <= kSizeMax)
            return *value;
        if (status_)
            status_ = bad_value(metadata_, key, *value, "1 to " + std::to_string(kSizeMax));
        return 1;
    }
    uint32_t size(std::string_view key) { return size(key, metadata_.u32(key)); }
    uint32_t size_or(std::string_view key, uint32_t fallback) {
        return size(key, metadata_.u32_or(key, fallback));
    }
    uint32_t size_per_layer(std::string_view key) {
        return size(key, metadata_.u32_per_layer(key));
    }
    float number_or(std::string_view key, float fallback) {
        Result<float> value = metadata_.f32_or(key, fallback);
        if (!keep(value))
            return fallback;
        if (std::isfinite(*value) && *value >= 0.0f)
            return *value;
        if (status_)
            status_ = fail(ErrorCode::kCorruptFile, "key '" + std::string(key) + "' of " +
                                                        metadata_.path() +
                                                        " is not a number from zero up");
        return fallback;
    }
    void require(bool condition, std::string_view key, uint64_t value,
                 const std::string& expected) {
        if (status_ && !condition)
            status_ = bad_value(metadata_, key, value, expected);
    }
    template <class T>
    bool keep(const Result<T>& value) {
        if (!value && status_)
            status_ = std::unexpected(value.error());
        return value.has_value();
    }
    const Status& status() const { return status_; }

private:
    const Metadata& metadata_;
    Status status_;
};

uint32_t vocabulary_of(const Metadata& metadata, Reader& reader) {
    const MetadataValue* tokens = metadata.find("tokenizer.ggml.tokens");
    if (tokens) {
        if (const auto* list = std::get_if<std::vector<std::string>>(tokens))
            return reader.size("tokenizer.ggml.tokens", static_cast<uint32_t>(list->size()));
    }
    return reader.size("{arch}.vocab_size");
}

// The rules are libllama's: YaRN's length factor is folded in so that ggml's kernel, which applies
// it again, cancels it.
void read_rope(const Metadata& metadata, Reader& reader, ModelShape& shape) {
    shape.rope_dimensions = reader.size_or("{arch}.rope.dimension_count", shape.head_size_k);
    reader.require(shape.rope_dimensions <= shape.head_size_k && shape.rope_dimensions % 2 == 0,
                   "{arch}.rope.dimension_count", shape.rope_dimensions,
                   "an even number up to the head size");
    shape.rope_base = reader.number_or("{arch}.rope.freq_base", 10000.0f);
    reader.require(shape.rope_base > 0.0f, "{arch}.rope.freq_base", 0, "a positive number");
    Result<std::string> type = metadata.str_or("{arch}.rope.scaling.type", "linear");
    if (!reader.keep(type))
        return;
    if (*type != "none" && *type != "linear" && *type != "yarn") {
        Status unknown =
            fail(ErrorCode::kUnsupported,
                 "rope scaling '" + *type + "' of " + metadata.path() + " is not supported",
                 "supported: none, linear, yarn");
        reader.keep(Result<int>(std::unexpected(unknown.error())));
        return;
    }
    float factor = reader.number_or("{arch}.rope.scaling.factor", 0.0f);
    if (factor == 0.0f)
        factor = reader.number_or("{arch}.rope.scale_linear", 0.0f);
    shape.rope_scale = factor == 0.0f || *type == "none" ? 1.0f : 1.0f / factor;
    shape.rope_context_original =
        reader.size_or("{arch}.rope.scaling.original_context_length", shape.context_train);
    shape.rope_yarn_beta_fast = reader.number_or("{arch}.rope.scaling.yarn_beta_fast", 32.0f);
    shape.rope_yarn_beta_slow = reader.number_or("{arch}.rope.scaling.yarn_beta_slow", 1.0f);
    float own_factor = reader.number_or("{arch}.rope.scaling.attn_factor", 1.0f);
    shape.rope_yarn_attn_factor = own_factor;
    if (*type == "yarn") {
        shape.rope_yarn_ext_factor = 1.0f;
        float length = 1.0f / shape.rope_scale;
        float scale = length <= 1.0f ? 1.0f : 0.1f * std::log(length) + 1.0f;
        shape.rope_yarn_attn_factor =
            scale * (1.0f / (1.0f + 0.1f * std::log(length))) * own_factor;
    }
}

}  // namespace

Result<ModelShape> read_common_shape(const Metadata& metadata) {
    Reader reader(metadata);
    ModelShape shape;
    Result<std::string> architecture = metadata.str("general.architecture");
    Result<std::string> name = metadata.str_or("general.name", "");
    if (reader.keep(architecture) && reader.keep(name)) {
        shape.architecture = *architecture;
        shape.name = *name;
    }
    shape.layers = reader.size("{arch}.block_count");
    reader.require(shape.layers <= 4096, "{arch}.block_count", shape.layers, "1 to 4096");
    shape.context_train = reader.size("{arch}.context_length");
    shape.embedding = reader.size("{arch}.embedding_length");
    shape.vocabulary = vocabulary_of(metadata, reader);
    shape.heads = reader.size_per_layer("{arch}.attention.head_count");
    shape.heads_kv = metadata.has("{arch}.attention.head_count_kv")
                         ? reader.size_per_layer("{arch}.attention.head_count_kv")
                         : shape.heads;
    reader.require(shape.heads % shape.heads_kv == 0, "{arch}.attention.head_count_kv",
                   shape.heads_kv, "a divisor of the number of heads");
    uint32_t head_size = std::max(1u, shape.embedding / shape.heads);
    shape.head_size_k = reader.size_or("{arch}.attention.key_length", head_size);
    shape.head_size_v = reader.size_or("{arch}.attention.value_length", head_size);
    shape.experts = reader.size("{arch}.expert_count");
    shape.experts_used = reader.size("{arch}.expert_used_count");
    reader.require(shape.experts_used <= shape.experts, "{arch}.expert_used_count",
                   shape.experts_used, "at most the number of experts");
    shape.norm_epsilon = reader.number_or("{arch}.attention.layer_norm_rms_epsilon", 1e-6f);
    float weights_scale = reader.number_or("{arch}.expert_weights_scale", 0.0f);
    if (reader.status() && weights_scale != 0.0f && weights_scale != 1.0f)
        return fail(ErrorCode::kUnsupported, "key '{arch}.expert_weights_scale' of " +
                                                 metadata.path() + " is not supported");
    read_rope(metadata, reader, shape);
    if (!reader.status())
        return std::unexpected(reader.status().error());
    return shape;
}

void write_common_shape(const ModelShape& shape, MetadataWriter& writer) {
    writer.set_u32("{arch}.block_count", shape.layers);
    writer.set_u32("{arch}.context_length", shape.context_train);
    writer.set_u32("{arch}.embedding_length", shape.embedding);
    writer.set_u32("{arch}.vocab_size", shape.vocabulary);
    writer.set_u32("{arch}.attention.head_count", shape.heads);
    writer.set_u32("{arch}.attention.head_count_kv", shape.heads_kv);
    writer.set_u32("{arch}.attention.key_length", shape.head_size_k);
    writer.set_u32("{arch}.attention.value_length", shape.head_size_v);
    writer.set_f32("{arch}.attention.layer_norm_rms_epsilon", shape.norm_epsilon);
    writer.set_u32("{arch}.expert_count", shape.experts);
    writer.set_u32("{arch}.expert_used_count", shape.experts_used);
    writer.set_u32("{arch}.expert_feed_forward_length", shape.expert_ff);
    // libllama asks for the width of a dense layer even where there is none.
    writer.set_u32("{arch}.feed_forward_length", shape.expert_ff);
    writer.set_u32("{arch}.rope.dimension_count", shape.rope_dimensions);
    writer.set_f32("{arch}.rope.freq_base", shape.rope_base);
    if (shape.rope_scale != 1.0f) {
        writer.set_str("{arch}.rope.scaling.type",
                       shape.rope_yarn_ext_factor != 0.0f ? "yarn" : "linear");
        writer.set_f32("{arch}.rope.scaling.factor", 1.0f / shape.rope_scale);
        writer.set_u32("{arch}.rope.scaling.original_context_length", shape.rope_context_original);
    }
}

TensorSpec block_tensor(uint32_t block, std::string_view suffix, std::vector<int64_t> dims,
                        TensorRole role) {
    TensorSpec spec;
    spec.name = "blk." + std::to_string(block) + "." + std::string(suffix);
    spec.dims = std::move(dims);
    spec.role = role;
    spec.layer = static_cast<int32_t>(block);
    return spec;
}

}  // namespace bevy
