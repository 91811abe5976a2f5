// Runs steps, one after the other, on the calling thread: keeps every sequence's pass, builds the
// graph, computes it, reads routes and logits. GgmlCompute wraps it in a thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "compute/activations.h"
#include "compute/compute.h"
#include "compute/ggml_compute.h"
#include "compute/kv_cache.h"
#include "compute/pass.h"
#include "compute/resident_weights.h"
#include "compute/slot_views.h"
#include "compute/step_graph.h"

namespace bevy {

class StepRunner {
public:
    // Describes everything and takes no memory for it yet.
    static Result<std::unique_ptr<StepRunner>> plan(const ModelFile& file,
                                                    const Architecture& architecture,
                                                    const ModelShape& shape,
                                                    const ComputeOptions& options,
                                                    const SlotLayout& layout, uint32_t slots);

    // An upper bound of what load() and run() take. Leaves this runner unusable for load().
    ComputeMemory measure();
    Status load(const ModelFile& file, void* slot_base, const Clock& clock,
                const GgmlCompute::Progress& progress);

    StepResult run(const ComputeStep& step);
    void abandon(SeqIndex seq);
    std::span<const float> logits(SeqIndex seq) const;
    const ResidentWeights& weights() const { return weights_; }
    StepTensors tensors() const;

private:
    StepRunner(const ModelShape& shape, const ComputeOptions& options, const RowPlan& rows,
               KvTypes kv_types, ResidentWeights weights, const ArchitectureGraphs& graphs,
               const SlotLayout& layout, uint32_t slots, ggml_backend_dev_t device);

    size_t graph_tensors_max() const;
    void begin_passes(const ComputeStep& step);
    void check(const ComputeStep& step);
    Status compute(StepGraph& graph, bool wide);
    Status read_outputs(const ComputeStep& step, const StepGraph& graph, StepResult& result);
    Result<std::vector<ExpertIndex>> read_choices(const ggml_tensor* selected) const;
    void read_route(std::span<const ExpertIndex> selected, Pass& pass, SeqResult& result);
    void end_pass(Pass& pass);
    // Calls `use` with the largest graph of every stage, with and without chunks.
    template <class Use>
    void for_worst_graphs(Use use);
    ComputeStep worst_step(uint32_t stage, bool wide);

    ModelShape shape_;
    ComputeOptions options_;
    RowPlan rows_;
    const ArchitectureGraphs& graphs_;
    ggml_backend_dev_t device_;
    ResidentWeights weights_;
    KvCache kv_;
    SlotViews slots_;
    uint32_t slot_count_;
    mutable Activations activations_;
    GgmlPtr<ggml_backend> backend_;
    GgmlPtr<ggml_context> graph_context_;
    // Steps with chunks and steps without have allocators of their own: what a big graph leaves
    // behind makes planning a small one slower.
    std::array<GgmlPtr<ggml_gallocr>, 2> allocators_;
    const Clock* clock_ = nullptr;
    std::vector<Pass> passes_;  // [SeqIndex]
    std::vector<uint32_t> free_lanes_;
    std::vector<std::vector<float>> logits_;  // [SeqIndex]
    std::vector<uint32_t> rows_of_expert_;
};

}  // namespace bevy
