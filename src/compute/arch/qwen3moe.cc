// Qwen3 MoE (Qwen3-30B-A3B, Qwen3-235B-A22B and models of the same shape): every block has routed
// experts and no shared ones; queries and keys are normalised per head.
#include "compute/arch/common.h"
#include "compute/arch/graphs.h"
#include "compute/arch/registry.h"
#include "compute/graph_builder.h"

#include <cmath>

namespace bevy {

namespace {

// Part 1: shape.

Result<ModelShape> read_shape(const Metadata& metadata) {
    Result<ModelShape> shape = read_common_shape(metadata);
    if (!shape)
        return shape;
    Result<uint32_t> width = metadata.u32_or("{arch}.expert_feed_forward_length", 0);
    if (!width)
        return std::unexpected(width.error());
    if (*width == 0) {
        // Older files give only the width of all used experts together.
        width = metadata.u32("{arch}.feed_forward_length");
        if (!width)
            return std::unexpected(width.error());
        *width /= shape->experts_used;
    }
    if (*width == 0 || shape->head_size_k != shape->head_size_v ||
        shape->rope_dimensions != shape->head_size_k)
        return fail(ErrorCode::kUnsupported,
                    metadata.path() + " has head or expert sizes that a qwen3moe model can't have");
    shape->expert_ff = *width;
    return shape;
}

void write_shape(const ModelShape& shape, MetadataWriter& writer) {
    write_common_shape(shape, writer);
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
    };
    if (!shape.tied_head)
        specs.push_back({"output.weight", {embedding, shape.vocabulary}, kHead, true});
    for (uint32_t block = 0; block < shape.layers; block++) {
        auto add = [&](const char* suffix, std::vector<int64_t> dims, TensorRole role) {
            specs.push_back(block_tensor(block, suffix, std::move(dims), role));
        };
        add("attn_norm.weight", {embedding}, kNorm);
        add("attn_q.weight", {embedding, q}, kMatrix);
        add("attn_k.weight", {embedding, kv}, kMatrix);
        add("attn_v.weight", {embedding, kv}, kMatrix);
        add("attn_output.weight", {q, embedding}, kMatrix);
        add("attn_q_norm.weight", {shape.head_size_k}, kNorm);
        add("attn_k_norm.weight", {shape.head_size_k}, kNorm);
        add("ffn_norm.weight", {embedding}, kNorm);
        add("ffn_gate_inp.weight", {embedding, experts}, kVector);
        add("ffn_gate_exps.weight", {embedding, ff, experts}, kExpert);
        add("ffn_up_exps.weight", {embedding, ff, experts}, kExpert);
        add("ffn_down_exps.weight", {ff, embedding, experts}, kExpert);
    }
    return specs;
}

// Part 3: graphs.

class Qwen3MoeGraphs final : public ArchitectureGraphs {
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
        q = b.rope(b.rms_norm(q, b.weight(block, "attn_q_norm.weight")));
        k = b.rope(b.rms_norm(k, b.weight(block, "attn_k_norm.weight")));
        ggml_tensor* seen =
            b.attend({.block = block,
                      .q = q,
                      .k = k,
                      .v = v,
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
        routed.input = b.rms_norm(x, b.weight(block, "ffn_norm.weight"));
        ggml_tensor* logits = b.linear(block, "ffn_gate_inp", routed.input);
        b.choose_experts(logits, {.softmax_first = true, .normalise_chosen = true}, routed);
        return routed;
    }

    ggml_tensor* expert(GraphBuilder& b, ExpertProducts& experts, ggml_tensor* x) const override {
        ggml_tensor* gate = experts.product(0, x);
        ggml_tensor* up = experts.product(1, x);
        return experts.product(2, ggml_swiglu_split(b.ctx, gate, up));
    }

    ggml_tensor* head(GraphBuilder& b, ggml_tensor* x) const override {
        bool own = b.has_weight("output.weight");
        ggml_tensor* in = b.rms_norm(x, b.weight("output_norm.weight"));
        return b.product(b.weight(own ? "output.weight" : "token_embd.weight"), in);
    }
};

const Qwen3MoeGraphs kGraphs;

void complete_shape(ModelShape&) {}

}  // namespace

const Architecture kQwen3Moe = {"qwen3moe",  read_shape,     tensors,
                                write_shape, complete_shape, &kGraphs};

}  // namespace bevy
