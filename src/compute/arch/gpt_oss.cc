// gpt-oss (20b, 120b): biases everywhere, attention sinks, a sliding window on every other block,
// YaRN rope, and experts with a clamped SwiGLU. The router chooses by logits and weighs the chosen
// only.
#include "compute/arch/common.h"
#include "compute/arch/graphs.h"
#include "compute/arch/registry.h"
#include "compute/graph_builder.h"

#include <cmath>

namespace bevy {

namespace {

constexpr float kSwigluAlpha = 1.702f;
constexpr float kSwigluLimit = 7.0f;

// Part 1: shape.

Result<ModelShape> read_shape(const Metadata& metadata) {
    Result<ModelShape> shape = read_common_shape(metadata);
    if (!shape)
        return shape;
    Result<uint32_t> width = metadata.u32("{arch}.expert_feed_forward_length");
    Result<uint32_t> window = metadata.u32("{arch}.attention.sliding_window");
    Result<uint32_t> period = metadata.u32_or("{arch}.attention.sliding_window_pattern", 2);
    for (const Result<uint32_t>* value : {&width, &window, &period}) {
        if (!*value)
            return std::unexpected(value->error());
    }
    if (*width == 0 || *window == 0 || shape->head_size_k != shape->head_size_v ||
        shape->rope_dimensions != shape->head_size_k)
        return fail(
            ErrorCode::kUnsupported,
            metadata.path() + " has head, window or expert sizes that a gpt-oss model can't have");
    shape->expert_ff = *width;
    shape->sliding_window = *window;
    shape->sliding_window_period = *period;
    return shape;
}

void write_shape(const ModelShape& shape, MetadataWriter& writer) {
    write_common_shape(shape, writer);
    writer.set_u32("{arch}.attention.sliding_window", shape.sliding_window);
}

// Of `period` blocks in a row, the last one sees everything; period 0 is a window everywhere.
uint32_t window_of(const ModelShape& shape, uint32_t block) {
    uint32_t period = shape.sliding_window_period;
    bool windowed = period == 0 || block % period + 1 < period;
    return windowed ? shape.sliding_window : 0;
}

// Part 2: tensors.

std::vector<TensorSpec> tensors(const ModelShape& shape) {
    using enum TensorRole;
    const int64_t embedding = shape.embedding;
    const int64_t q = int64_t{shape.head_size_k} * shape.heads;
    const int64_t kv = int64_t{shape.head_size_k} * shape.heads_kv;
    const int64_t experts = shape.experts;
    const int64_t ff = shape.expert_ff;
    std::vector<TensorSpec> specs = {
        {"token_embd.weight", {embedding, shape.vocabulary}, kEmbedding},
        {"output_norm.weight", {embedding}, kNorm},
        {"output.weight", {embedding, shape.vocabulary}, kHead},
    };
    for (uint32_t block = 0; block < shape.layers; block++) {
        auto add = [&](const char* suffix, std::vector<int64_t> dims, TensorRole role) {
            specs.push_back(block_tensor(block, suffix, std::move(dims), role));
        };
        add("attn_norm.weight", {embedding}, kNorm);
        add("attn_q.weight", {embedding, q}, kMatrix);
        add("attn_q.bias", {q}, kVector);
        add("attn_k.weight", {embedding, kv}, kMatrix);
        add("attn_k.bias", {kv}, kVector);
        add("attn_v.weight", {embedding, kv}, kMatrix);
        add("attn_v.bias", {kv}, kVector);
        add("attn_output.weight", {q, embedding}, kMatrix);
        add("attn_output.bias", {embedding}, kVector);
        add("attn_sinks.weight", {shape.heads}, kVector);
        add("post_attention_norm.weight", {embedding}, kNorm);
        add("ffn_gate_inp.weight", {embedding, experts}, kVector);
        add("ffn_gate_inp.bias", {experts}, kVector);
        add("ffn_gate_exps.weight", {embedding, ff, experts}, kExpert);
        add("ffn_gate_exps.bias", {ff, experts}, kVector);
        add("ffn_up_exps.weight", {embedding, ff, experts}, kExpert);
        add("ffn_up_exps.bias", {ff, experts}, kVector);
        add("ffn_down_exps.weight", {ff, embedding, experts}, kExpert);
        add("ffn_down_exps.bias", {embedding, experts}, kVector);
    }
    return specs;
}

// Part 3: graphs.

class GptOssGraphs final : public ArchitectureGraphs {
public:
    ggml_tensor* embed(GraphBuilder& b, ggml_tensor* tokens) const override {
        return ggml_get_rows(b.ctx, b.weight("token_embd.weight"), tokens);
    }

    ggml_tensor* attention(GraphBuilder& b, uint32_t block, ggml_tensor* x) const override {
        const ModelShape& s = b.shape;
        ggml_tensor* in = b.rms_norm(x, b.weight(block, "attn_norm.weight"));
        ggml_tensor* q = b.split_heads(b.linear(block, "attn_q", in), s.head_size_k, s.heads);
        ggml_tensor* k = b.split_heads(b.linear(block, "attn_k", in), s.head_size_k, s.heads_kv);
        ggml_tensor* v = b.split_heads(b.linear(block, "attn_v", in), s.head_size_v, s.heads_kv);
        ggml_tensor* seen =
            b.attend({.block = block,
                      .q = b.rope(q),
                      .k = b.rope(k),
                      .v = v,
                      .sinks = b.weight(block, "attn_sinks.weight"),
                      .window = window_of(s, block),
                      .scale = 1.0f / std::sqrt(static_cast<float>(s.head_size_k))});
        return ggml_add(b.ctx, b.linear(block, "attn_output", seen), x);
    }

    // Every block routes.
    ggml_tensor* dense_feed_forward(GraphBuilder&, uint32_t, ggml_tensor* x) const override {
        return x;
    }

    Routed route(GraphBuilder& b, uint32_t block, ggml_tensor* x) const override {
        Routed routed;
        routed.residual = x;
        routed.input = b.rms_norm(x, b.weight(block, "post_attention_norm.weight"));
        ggml_tensor* logits = b.linear(block, "ffn_gate_inp", routed.input);
        b.choose_experts(logits, {.softmax_first = false, .softmax_chosen = true}, routed);
        return routed;
    }

    ggml_tensor* expert(GraphBuilder& b, ExpertProducts& experts, ggml_tensor* x) const override {
        ggml_tensor* gate = experts.add_bias("ffn_gate_exps.bias", experts.product(0, x));
        ggml_tensor* up = experts.add_bias("ffn_up_exps.bias", experts.product(1, x));
        ggml_tensor* active = ggml_swiglu_oai(b.ctx, gate, up, kSwigluAlpha, kSwigluLimit);
        return experts.add_bias("ffn_down_exps.bias", experts.product(2, active));
    }

    ggml_tensor* head(GraphBuilder& b, ggml_tensor* x) const override {
        return b.product(b.weight("output.weight"), b.rms_norm(x, b.weight("output_norm.weight")));
    }
};

const GptOssGraphs kGraphs;

// As in gpt-oss-20b and -120b.
void complete_shape(ModelShape& shape) {
    shape.sliding_window = 128;
    shape.sliding_window_period = 2;
    shape.norm_epsilon = 1e-5f;
    shape.rope_base = 150000.0f;
    shape.rope_scale = 1.0f / 32.0f;
    shape.rope_context_original = 4096;
    shape.rope_yarn_ext_factor = 1.0f;
}

}  // namespace

const Architecture kGptOss = {"gpt-oss",   read_shape,     tensors,
                              write_shape, complete_shape, &kGraphs};

}  // namespace bevy
