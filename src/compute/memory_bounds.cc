#include "compute/memory_bounds.h"

#include <algorithm>

#include "base/ids.h"
#include "base/units.h"

namespace bevy {

uint64_t graph_bookkeeping_bytes(uint64_t tensors) {
    return (tensors + 16) * ggml_tensor_overhead() + ggml_graph_overhead_custom(tensors, false);
}

uint64_t host_row_bytes(const ModelShape& shape, const RowPlan& rows, uint32_t guessed_layers) {
    uint64_t pairs = uint64_t{rows.rows()} * shape.experts_used;
    // Vectors grow by doubling.
    uint64_t lists = 2 * (uint64_t{rows.rows()} * 64 + pairs * 64);
    // A layer's guesses of all sequences, as read, and all layers' in the result.
    uint64_t guesses = 2 * sizeof(ExpertIndex) * uint64_t{rows.sequences} * shape.experts_used *
                       (uint64_t{guessed_layers} + 1);
    return lists + guesses + 2 * sizeof(ggml_fp16_t) * uint64_t{rows.chunk_tokens} * rows.context;
}

WorkBounds work_bounds(const ModelShape& shape, const RowPlan& rows, uint32_t threads) {
    // A product converts its right-hand side to at most two bytes per number (F16, BF16; quantised
    // types take about one).
    uint64_t width = std::max({uint64_t{shape.embedding}, uint64_t{shape.expert_ff},
                               uint64_t{shape.head_size_v} * shape.heads});
    uint64_t singles = uint64_t{rows.sequences} + rows.lanes;
    uint64_t pairs = singles * shape.experts_used;
    uint64_t columns = std::max<uint64_t>({rows.chunk_tokens, singles, pairs});
    uint64_t product = 2 * width * columns;
    // Attention: per thread one tile of queries against one of keys, and partial results per head
    // when one query's positions are split among threads.
    uint64_t head = uint64_t{shape.head_size_k} + shape.head_size_v;
    uint64_t tile = 64 * (4 * head + 512) * sizeof(float);
    uint64_t attention = threads * (tile + (head + 16) * (shape.heads + 4) * sizeof(float));
    // Sorting experts, concatenation and copies: a row per thread.
    uint64_t rows_per_thread = threads * (width + shape.experts + 64) * sizeof(float);
    constexpr uint64_t kCacheLine = 64;
    WorkBounds bounds;
    bounds.fixed = product + attention + rows_per_thread + threads * kCacheLine + 64 * kKiB;
    // ggml_mul_mat_id keeps, per matrix, a counter on a cache line of its own and a list of all
    // rows.
    bounds.per_slot = kCacheLine + 2 * sizeof(int64_t) + 2 * sizeof(int32_t) * pairs;
    return bounds;
}

}  // namespace bevy
