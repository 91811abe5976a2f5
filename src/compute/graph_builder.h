// The vocabulary in which architectures describe their layers: weights by name, norm, rope,
// attention over each sequence's own memory, choice of experts. Adds nodes to the graph of the step
// being built.
//
// Rows go through the dense part of a stage together as a row group: either one token each of many
// sequences, or the chunk of one sequence. Everything here keeps a row's bits independent of the
// other rows of a group of single tokens. Compute thread only.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "compute/arch/graphs.h"
#include "compute/kv_cache.h"
#include "compute/resident_weights.h"
#include "ggml.h"
#include "model/model_shape.h"

namespace bevy {

struct RowGroup {
    // One token of one sequence.
    struct Single {
        uint32_t seq = 0;
        uint32_t position = 0;
    };

    uint32_t rows = 0;
    ggml_tensor* positions = nullptr;       // I32 [rows]
    ggml_tensor* kv_rows = nullptr;         // I64 [rows] where the rows' keys and values go
    std::span<const Single> singles;        // one per row; empty: a chunk
    ggml_tensor* single_outputs = nullptr;  // [heads * head size, >= rows] for attention results
    // A chunk: `rows` tokens of one sequence from `first_position` on.
    uint32_t seq = 0;
    uint32_t first_position = 0;
    ggml_tensor* mask = nullptr;         // F16 [positions, rows] for full attention
    ggml_tensor* window_mask = nullptr;  // F16 [positions in the window, rows]
};

struct AttentionInput {
    uint32_t block = 0;
    ggml_tensor* q = nullptr;  // [head size, heads, rows]
    ggml_tensor* k = nullptr;  // [head size, kv heads, rows]
    ggml_tensor* v = nullptr;  // [head size, kv heads, rows]
    ggml_tensor* sinks = nullptr;
    uint32_t window = 0;  // tokens that a query sees, itself included; 0: all before it
    float scale = 1.0f;
};

// How a router's numbers become a choice and weights.
struct RouterRule {
    bool softmax_first = true;      // probabilities over all experts, before the choice
    bool softmax_chosen = false;    // probabilities over the chosen ones, after it
    bool normalise_chosen = false;  // weights divided by their sum
};

class GraphBuilder {
public:
    GraphBuilder(ggml_context* context, ggml_cgraph* nodes, const ModelShape& model_shape,
                 const ResidentWeights& resident, const KvCache& cache)
        : ctx(context), graph(nodes), shape(model_shape), weights_(resident), kv_(cache) {}

    ggml_context* const ctx;
    ggml_cgraph* const graph;
    const ModelShape& shape;

    void set_group(const RowGroup* group) { group_ = group; }

    // A tensor that the architecture lists and the file check has found.
    ggml_tensor* weight(std::string_view name) const;
    ggml_tensor* weight(uint32_t block, std::string_view suffix) const;
    bool has_weight(std::string_view name) const { return weights_.find(name) != nullptr; }

    // matrix times x, in products of as many columns as keep each column exact.
    ggml_tensor* product(ggml_tensor* matrix, ggml_tensor* x) const;
    // Product with "<name>.weight" of the block, plus "<name>.bias" where the file has one.
    ggml_tensor* linear(uint32_t block, std::string_view name, ggml_tensor* x) const;
    ggml_tensor* rms_norm(ggml_tensor* x, ggml_tensor* scale) const;
    // Rotates [head size, heads, rows] by the rows' positions, pairing the halves of a head.
    ggml_tensor* rope(ggml_tensor* x) const;
    ggml_tensor* split_heads(ggml_tensor* x, uint32_t head_size, uint32_t heads) const;
    // Stores keys and values, then attends: [heads * head size, rows].
    ggml_tensor* attend(const AttentionInput& in) const;
    // Fills Routed::selected and weights from logits [experts, rows].
    void choose_experts(ggml_tensor* logits, const RouterRule& rule, Routed& routed) const;

    void expand(ggml_tensor* node) const { ggml_build_forward_expand(graph, node); }

private:
    ggml_tensor* attend_singles(const AttentionInput& in) const;
    ggml_tensor* attend_chunk(const AttentionInput& in) const;

    const ResidentWeights& weights_;
    const KvCache& kv_;
    const RowGroup* group_ = nullptr;
};

// The first position that a query at `position` sees.
constexpr uint32_t attention_begin(uint32_t position, uint32_t window) {
    return window == 0 || position < window ? 0 : position - window + 1;
}

}  // namespace bevy
