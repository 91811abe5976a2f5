// The slots as matrices: for every MoE layer and slice, one 3-D tensor over all slots, and 2-D
// views of one slot. No byte is copied; whoever filled the slots did so through the same memory.
//
// This is the only place that knows slots to be host memory. Compute thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "base/error.h"
#include "base/slot_layout.h"
#include "compute/resident_weights.h"
#include "compute/tensor_store.h"

namespace bevy {

class SlotViews {
public:
    // REQUIRES: `layout` fits the slices of `layers`, offsets are multiples of 32.
    SlotViews(const std::vector<MoeBlock>& layers, const SlotLayout& layout, uint32_t slots);

    // `base` holds slots * slot_bytes bytes and outlives this.
    Status attach(ggml_backend_dev_t device, void* base);
    void pretend() { store_.pretend(); }

    // Experts of a layer with the same phase lie at the same offsets in their slots.
    uint32_t phases(uint32_t layer) const { return phases_[layer]; }
    uint32_t phase(uint32_t layer, ExpertIndex expert) const {
        return expert.value % phases_[layer];
    }
    // [in, out, slots], for experts of one phase.
    ggml_tensor* all(uint32_t layer, uint32_t slice, uint32_t phase) const {
        const std::vector<ggml_tensor*>& views = views_[layer][slice];
        return views[phase % views.size()];
    }
    // [in, out] of an expert in a slot.
    ggml_tensor* one(ggml_context* ctx, uint32_t layer, uint32_t slice, ExpertIndex expert,
                     uint32_t slot) const;

private:
    TensorStore store_;
    GgmlPtr<ggml_backend_buffer> buffer_;
    uint32_t slots_;
    uint64_t slot_bytes_;
    std::vector<uint32_t> phases_;                               // [layer]
    std::vector<std::vector<std::vector<ggml_tensor*>>> views_;  // [layer][slice][offset]
    std::vector<std::vector<std::vector<uint64_t>>> offsets_;    // the same
};

// A layout that packs the slices of every layer, for measuring and for tests.
SlotLayout packed_slot_layout(const std::vector<MoeBlock>& layers);

}  // namespace bevy
