#include "compute/slot_views.h"

#include <algorithm>

#include "base/assert.h"
#include "base/units.h"

namespace bevy {

namespace {

constexpr uint64_t kSliceAlignment = 32;

size_t slices_of(const std::vector<MoeBlock>& layers) {
    size_t count = 0;
    for (const MoeBlock& layer : layers)
        count += layer.slices.size();
    return count;
}

}  // namespace

SlotViews::SlotViews(const std::vector<MoeBlock>& layers, const SlotLayout& layout, uint32_t slots)
    : store_(slices_of(layers)), slots_(slots), slot_bytes_(layout.slot_bytes) {
    BEVY_ASSERT(slots > 0 && layout.layers.size() == layers.size());
    views_.resize(layers.size());
    offsets_.resize(layers.size());
    for (size_t l = 0; l < layers.size(); l++) {
        BEVY_ASSERT(layout.layers[l].size() == layers[l].slices.size());
        for (size_t i = 0; i < layers[l].slices.size(); i++) {
            const ExpertMatrix& matrix = layers[l].slices[i];
            uint64_t offset = layout.layers[l][i].offset;
            BEVY_ASSERT(offset % kSliceAlignment == 0 && slot_bytes_ % kSliceAlignment == 0);
            BEVY_ASSERT(offset + matrix.bytes() <= slot_bytes_);
            ggml_tensor* view =
                ggml_new_tensor_3d(store_.context(), matrix.type, matrix.in, matrix.out, slots);
            view->nb[2] = slot_bytes_;
            view->nb[3] = slot_bytes_ * slots;
            views_[l].push_back(view);
            offsets_[l].push_back(offset);
        }
    }
}

Status SlotViews::attach(ggml_backend_dev_t device, void* base) {
    BEVY_ASSERT(reinterpret_cast<uintptr_t>(base) % kSliceAlignment == 0);
    uint64_t bytes = slot_bytes_ * slots_;
    buffer_.reset(ggml_backend_dev_buffer_from_host_ptr(device, base, bytes, bytes));
    if (!buffer_)
        return fail(ErrorCode::kUnsupported,
                    "the compute backend can't work on expert slots in host memory");
    ggml_backend_buffer_set_usage(buffer_.get(), GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
    for (size_t l = 0; l < views_.size(); l++) {
        for (size_t i = 0; i < views_[l].size(); i++)
            ggml_backend_tensor_alloc(buffer_.get(), views_[l][i],
                                      static_cast<char*>(base) + offsets_[l][i]);
    }
    return {};
}

ggml_tensor* SlotViews::one(ggml_context* ctx, uint32_t layer, uint32_t slice,
                            uint32_t slot) const {
    BEVY_ASSERT(slot < slots_);
    ggml_tensor* all = views_[layer][slice];
    return ggml_view_2d(ctx, all, all->ne[0], all->ne[1], all->nb[1], slot * slot_bytes_);
}

SlotLayout packed_slot_layout(const std::vector<MoeBlock>& layers) {
    SlotLayout layout;
    for (const MoeBlock& layer : layers) {
        uint64_t end = 0;
        std::vector<SlotSlice>& slices = layout.layers.emplace_back();
        for (const ExpertMatrix& matrix : layer.slices) {
            slices.push_back({.offset = end});
            end = round_up(end + matrix.bytes(), kSliceAlignment);
        }
        layout.slot_bytes = std::max(layout.slot_bytes, round_up(end, 4 * kKiB));
    }
    return layout;
}

}  // namespace bevy
