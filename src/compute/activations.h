// What survives between steps, row by row: residual stream, expert input, router weights, and the
// outputs of each row's experts, kept apart until they are summed in router order.
//
// Row s belongs to sequence s; behind those, lane l owns chunk_tokens rows, which a pass of more
// than one token borrows from its first stage to its last. Also here: the memory for a step's index
// lists and for the lanes' attention masks. Compute thread only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compute/tensor_store.h"
#include "model/model_shape.h"

namespace bevy {

struct RowPlan {
    uint32_t sequences = 1;
    uint32_t lanes = 1;
    uint32_t chunk_tokens = 256;
    uint32_t context = 0;  // positions per sequence

    uint32_t rows() const { return sequences + lanes * chunk_tokens; }
    uint32_t lane_row(uint32_t lane) const { return sequences + lane * chunk_tokens; }
};

class Activations {
public:
    Activations(const ModelShape& shape, const RowPlan& plan);

    TensorStore& store() { return store_; }
    const RowPlan& plan() const { return plan_; }

    ggml_tensor* residual = nullptr;          // [embedding, rows]
    ggml_tensor* input = nullptr;             // [embedding, rows] what the chosen experts read
    ggml_tensor* weights = nullptr;           // [used, rows]
    ggml_tensor* outputs = nullptr;           // [embedding, used * rows]: row * used + rank
    ggml_tensor* single_attention = nullptr;  // [heads * head size, sequences]

    // The lane's mask for a chunk of `rows` tokens at `first_position`, as a tensor of `ctx`.
    ggml_tensor* mask(ggml_context* ctx, uint32_t lane, uint32_t first_position, uint32_t rows,
                      uint32_t window) const;
    // Writes both masks of a lane.
    void fill_masks(uint32_t lane, uint32_t first_position, uint32_t rows);

    // Index lists of the step being built: stored on the host until upload().
    void clear_lists();
    ggml_tensor* list(ggml_context* ctx, std::span<const int32_t> values);
    ggml_tensor* list(ggml_context* ctx, std::span<const int64_t> values);
    void upload_lists();

private:
    void fill_mask(ggml_tensor* memory, uint32_t first_position, uint32_t rows, uint32_t window);

    RowPlan plan_;
    uint32_t window_;
    TensorStore store_;
    ggml_tensor* ints_ = nullptr;
    ggml_tensor* longs_ = nullptr;
    std::vector<ggml_tensor*> masks_;         // per lane
    std::vector<ggml_tensor*> window_masks_;  // per lane; empty without a window
    std::vector<int32_t> host_ints_;
    std::vector<int64_t> host_longs_;
    std::vector<ggml_fp16_t> host_mask_;
};

}  // namespace bevy
