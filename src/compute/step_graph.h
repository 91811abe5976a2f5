// Builds the ggml graph of one step: the experts it names, then sum, dense part and router (or
// head) of the sequences that advance.
//
// Single tokens of different sequences go together as one row group; every chunk is a group of its
// own, so that a chunk's numbers depend on nothing but the chunk. Expert outputs land in
// Activations::outputs and are summed in router order when their sequence advances. Compute thread
// only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compute/activations.h"
#include "compute/arch/graphs.h"
#include "compute/compute.h"
#include "compute/graph_builder.h"
#include "compute/kv_cache.h"
#include "compute/pass.h"
#include "compute/resident_weights.h"
#include "compute/slot_views.h"

namespace bevy {

// Everything that graphs read and write. All outlive the graph.
struct StepTensors {
    const ModelShape& shape;
    const ArchitectureGraphs& graphs;
    const ResidentWeights& weights;
    const KvCache& kv;
    const SlotViews& slots;
    Activations& activations;
    uint32_t guessed_layers = 0;

    uint32_t moe_layers() const { return static_cast<uint32_t>(weights.moe_blocks().size()); }
    bool last_layer_is_moe() const { return weights.moe_blocks().back().block + 1 == shape.layers; }
    // Blocks whose dense part stage `stage` runs: [first, last).
    uint32_t first_block(uint32_t stage) const {
        return stage == 0 ? 0 : weights.moe_blocks()[stage - 1].block + 1;
    }
    uint32_t last_block(uint32_t stage) const {
        return stage == moe_layers() ? shape.layers : weights.moe_blocks()[stage].block + 1;
    }
};

class StepGraph {
public:
    // What the group's tensors say once the graph has run. Null: nothing to read.
    struct GroupOutput {
        std::vector<SeqIndex> seqs;       // one per row, or the one sequence of a chunk
        ggml_tensor* selected = nullptr;  // I32 [used, rows]
        ggml_tensor* logits = nullptr;    // [vocabulary, rows]
        // I32 [used, rows] each: what the routers of the following MoE layers say to the same rows.
        std::vector<ggml_tensor*> guesses;
    };

    // Builds into `ctx`, which has room for tensors_max(). `passes` is indexed by SeqIndex. For a
    // stage 0 step, the passes' rows, positions and lanes are set already.
    StepGraph(const StepTensors& tensors, ggml_context* ctx, const ComputeStep& step,
              std::span<Pass> passes);

    ggml_cgraph* graph() const { return graph_; }
    const std::vector<GroupOutput>& outputs() const { return outputs_; }

    // Tensors that a step of this size needs at most, views and leaves included.
    static size_t tensors_max(const StepTensors& tensors, size_t singles, size_t chunks,
                              size_t chunk_uses);

private:
    struct Pair {
        uint32_t row = 0;
        uint32_t rank = 0;
        ExpertUse use;
    };
    // Rows of the activation matrices: neighbours, or any rows by number.
    struct Rows {
        uint32_t first = 0;
        uint32_t count = 0;
        ggml_tensor* ids = nullptr;       // I32; null: neighbours from `first`
        ggml_tensor* long_ids = nullptr;  // I64
    };

    void add_experts(const ComputeStep& step, std::span<Pass> passes);
    void add_pairs(uint32_t layer, std::span<const Pair> pairs);
    void add_chunk_use(uint32_t layer, const ExpertUse& use, const Pass& pass);
    void add_singles(const ComputeStep& step, std::span<Pass> passes);
    void add_chunk(const ComputeStep& step, size_t index, Pass& pass);
    ggml_tensor* combine(const Rows& rows);
    // Attention and dense blocks of the stage; ends behind the attention of its MoE block, if any.
    ggml_tensor* dense_part(uint32_t stage, ggml_tensor* x);
    ggml_tensor* route(uint32_t stage, const Rows& rows, ggml_tensor* x);
    // Applies the routers behind that of MoE layer `stage` to the residual stream that it saw.
    std::vector<ggml_tensor*> guess(uint32_t stage, ggml_tensor* x);
    // The choices of a router, kept until the graph has run.
    ggml_tensor* selected(const Routed& routed) const;
    ggml_tensor* head(ggml_tensor* x);

    Rows neighbours(uint32_t first, uint32_t count) const { return {first, count}; }
    Rows any_rows(std::span<const uint32_t> rows);
    ggml_tensor* gather(ggml_tensor* matrix, const Rows& rows) const;
    void scatter(ggml_tensor* values, ggml_tensor* matrix, const Rows& rows) const;

    const StepTensors& t_;
    ggml_context* ctx_;
    ggml_cgraph* graph_;
    GraphBuilder builder_;
    std::vector<GroupOutput> outputs_;
    std::vector<RowGroup::Single> singles_;
};

}  // namespace bevy
