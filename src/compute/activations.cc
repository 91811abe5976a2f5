#include "compute/activations.h"

#include <algorithm>

#include "base/assert.h"
#include "compute/graph_builder.h"

namespace bevy {

namespace {

constexpr ggml_fp16_t kVisible = 0x0000;  // 0 in F16
constexpr ggml_fp16_t kHidden = 0xfc00;   // minus infinity in F16

}  // namespace

Activations::Activations(const ModelShape& shape, const RowPlan& plan)
    : plan_(plan), window_(shape.sliding_window), store_(8 + 2 * size_t{plan.lanes}) {
    ggml_context* ctx = store_.context();
    const int64_t rows = plan.rows();
    const int64_t used = shape.experts_used;
    residual = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, shape.embedding, rows);
    input = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, shape.embedding, rows);
    weights = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, used, rows);
    outputs = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, shape.embedding, used * rows);
    single_attention = ggml_new_tensor_2d(ctx, GGML_TYPE_F32,
                                          int64_t{shape.head_size_v} * shape.heads, plan.sequences);
    // Per row: token, position, two copies of the row, its place in the KV memory; per row and
    // rank: row, slot, expert, output place.
    ints_ = ggml_new_tensor_1d(ctx, GGML_TYPE_I32, rows * (4 + 3 * used) + 64);
    longs_ = ggml_new_tensor_1d(ctx, GGML_TYPE_I64, rows * (2 + used) + 64);
    const int64_t chunk = plan.chunk_tokens;
    for (uint32_t lane = 0; lane < plan.lanes; lane++) {
        masks_.push_back(ggml_new_tensor_1d(ctx, GGML_TYPE_F16, chunk * plan.context));
        if (window_ == 0)
            continue;
        int64_t seen = std::min<int64_t>(plan.context, chunk + window_ - 1);
        window_masks_.push_back(ggml_new_tensor_1d(ctx, GGML_TYPE_F16, chunk * seen));
    }
}

ggml_tensor* Activations::mask(ggml_context* ctx, uint32_t lane, uint32_t first_position,
                               uint32_t rows, uint32_t window) const {
    int64_t seen = first_position + rows - attention_begin(first_position, window);
    ggml_tensor* memory = window ? window_masks_[lane] : masks_[lane];
    BEVY_ASSERT(seen * rows <= memory->ne[0]);
    return ggml_view_2d(ctx, memory, seen, rows, static_cast<size_t>(seen) * sizeof(ggml_fp16_t),
                        0);
}

void Activations::fill_mask(ggml_tensor* memory, uint32_t first_position, uint32_t rows,
                            uint32_t window) {
    uint32_t begin = attention_begin(first_position, window);
    size_t seen = first_position + rows - begin;
    host_mask_.assign(seen * rows, kHidden);
    for (uint32_t row = 0; row < rows; row++) {
        uint32_t position = first_position + row;
        ggml_fp16_t* line = host_mask_.data() + seen * row;
        std::fill(line + (attention_begin(position, window) - begin), line + (position + 1 - begin),
                  kVisible);
    }
    ggml_backend_tensor_set(memory, host_mask_.data(), 0, host_mask_.size() * sizeof(ggml_fp16_t));
}

void Activations::fill_masks(uint32_t lane, uint32_t first_position, uint32_t rows) {
    fill_mask(masks_[lane], first_position, rows, 0);
    if (window_ != 0)
        fill_mask(window_masks_[lane], first_position, rows, window_);
}

void Activations::clear_lists() {
    host_ints_.clear();
    host_longs_.clear();
}

ggml_tensor* Activations::list(ggml_context* ctx, std::span<const int32_t> values) {
    size_t offset = host_ints_.size();
    host_ints_.insert(host_ints_.end(), values.begin(), values.end());
    BEVY_ASSERT(static_cast<int64_t>(host_ints_.size()) <= ints_->ne[0]);
    return ggml_view_1d(ctx, ints_, static_cast<int64_t>(values.size()), offset * sizeof(int32_t));
}

ggml_tensor* Activations::list(ggml_context* ctx, std::span<const int64_t> values) {
    size_t offset = host_longs_.size();
    host_longs_.insert(host_longs_.end(), values.begin(), values.end());
    BEVY_ASSERT(static_cast<int64_t>(host_longs_.size()) <= longs_->ne[0]);
    return ggml_view_1d(ctx, longs_, static_cast<int64_t>(values.size()), offset * sizeof(int64_t));
}

void Activations::upload_lists() {
    if (!host_ints_.empty())
        ggml_backend_tensor_set(ints_, host_ints_.data(), 0, host_ints_.size() * sizeof(int32_t));
    if (!host_longs_.empty())
        ggml_backend_tensor_set(longs_, host_longs_.data(), 0,
                                host_longs_.size() * sizeof(int64_t));
}

}  // namespace bevy
