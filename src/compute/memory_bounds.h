// Closed-form upper bounds for memory that can't be measured before it is taken.
#pragma once

#include <cstdint>

#include "compute/activations.h"
#include "model/model_shape.h"

namespace bevy {

// A graph of `tensors` tensors: their descriptions, the graph's tables, the allocator's table.
uint64_t graph_bookkeeping_bytes(uint64_t tensors);

// Index lists, masks, routes and guesses on the host.
uint64_t host_row_bytes(const ModelShape& shape, const RowPlan& rows, uint32_t guessed_layers);

// What ggml's CPU backend takes as scratch for one graph.
struct WorkBounds {
    uint64_t fixed = 0;
    uint64_t per_slot = 0;
};
WorkBounds work_bounds(const ModelShape& shape, const RowPlan& rows, uint32_t threads);

}  // namespace bevy
