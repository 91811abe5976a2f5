// Part 3 of an architecture: how its layers compute, said in terms of the helpers of GraphBuilder.
//
// The caller cuts the model into stages (see compute/compute.h), keeps the rows of every sequence,
// and asks an architecture for the pieces: embedding, attention of a block, feed-forward of a dense
// block, router of a MoE block, the expert's own formula, head. A piece sees a matrix of rows
// [width, rows] and never knows whether they are one sequence's chunk or one token each of many
// sequences.
//
// Every result is a new tensor of the builder's graph. Compute thread only.
#pragma once

#include <cstdint>

struct ggml_tensor;

namespace bevy {

class GraphBuilder;

// What a router decides for a matrix of rows.
struct Routed {
    ggml_tensor* input = nullptr;     // [embedding, rows] what the chosen experts read
    ggml_tensor* residual = nullptr;  // [embedding, rows] what their weighted sum is added to
    ggml_tensor* selected = nullptr;  // I32 [used, rows] highest weight first
    ggml_tensor* weights = nullptr;   // [used, rows]
};

// The weights of one or many experts, however they are batched: rows may belong to different
// experts.
class ExpertProducts {
public:
    virtual ~ExpertProducts() = default;
    // x times slice `slice` (in the order of the architecture's kExpert tensors) of each row's
    // expert.
    virtual ggml_tensor* product(uint32_t slice, ggml_tensor* x) = 0;
    // y plus each row's expert's row of the resident matrix `suffix` of the block.
    virtual ggml_tensor* add_bias(const char* suffix, ggml_tensor* y) = 0;
};

class ArchitectureGraphs {
public:
    virtual ~ArchitectureGraphs() = default;

    // I32 [rows] -> [embedding, rows].
    virtual ggml_tensor* embed(GraphBuilder& b, ggml_tensor* tokens) const = 0;
    // The residual stream after the attention of `block`. Writes the rows' keys and values.
    virtual ggml_tensor* attention(GraphBuilder& b, uint32_t block, ggml_tensor* x) const = 0;
    // The residual stream after the feed-forward part of a block without routed experts.
    virtual ggml_tensor* dense_feed_forward(GraphBuilder& b, uint32_t block,
                                            ggml_tensor* x) const = 0;
    // The router of a MoE block, with everything of its feed-forward part that all rows need (norm,
    // shared experts, which go into the residual). For a guess it is asked about the rows of an
    // earlier block, and only `selected` is computed: so it must not expand anything by itself.
    virtual Routed route(GraphBuilder& b, uint32_t block, ggml_tensor* x) const = 0;
    // The formula of one expert: [embedding, rows] -> [embedding, rows].
    virtual ggml_tensor* expert(GraphBuilder& b, ExpertProducts& experts, ggml_tensor* x) const = 0;
    // Final norm and output matrix: [embedding, rows] -> [vocabulary, rows].
    virtual ggml_tensor* head(GraphBuilder& b, ggml_tensor* x) const = 0;
};

}  // namespace bevy
