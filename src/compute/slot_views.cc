#include "compute/slot_views.h"

#include <algorithm>
#include <bit>

#include "base/assert.h"
#include "base/units.h"

namespace bevy {

namespace {

constexpr uint64_t kSliceAlignment = 32;

size_t views_of(const SlotLayout& layout) {
    size_t count = 0;
    for (const std::vector<SlotSlice>& slices : layout.layers) {
        for (const SlotSlice& slice : slices)
            count += slice.offsets.size();
    }
    return count;
}

}  // namespace

SlotViews::SlotViews(const std::vector<MoeBlock>& layers, const SlotLayout& layout, uint32_t slots)
    : store_(views_of(layout)), slots_(slots), slot_bytes_(layout.slot_bytes) {
    BEVY_ASSERT(slots > 0 && layout.layers.size() == layers.size());
    views_.resize(layers.size());
    offsets_.resize(layers.size());
    phases_.assign(layers.size(), 1);
    for (size_t l = 0; l < layers.size(); l++) {
        BEVY_ASSERT(layout.layers[l].size() == layers[l].slices.size());
        for (size_t i = 0; i < layers[l].slices.size(); i++) {
            const ExpertMatrix& matrix = layers[l].slices[i];
            const std::vector<uint64_t>& offsets = layout.layers[l][i].offsets;
            const auto count = static_cast<uint32_t>(offsets.size());
            // Powers of two, so that the largest is a multiple of all.
            BEVY_ASSERT(std::has_single_bit(count));
            phases_[l] = std::max(phases_[l], count);
            offsets_[l].push_back(offsets);
            std::vector<ggml_tensor*>& views = views_[l].emplace_back();
            for (uint64_t offset : offsets) {
                BEVY_ASSERT(offset % kSliceAlignment == 0 && slot_bytes_ % kSliceAlignment == 0);
                BEVY_ASSERT(offset + matrix.bytes() <= slot_bytes_);
                ggml_tensor* view =
                    ggml_new_tensor_3d(store_.context(), matrix.type, matrix.in, matrix.out, slots);
                view->nb[2] = slot_bytes_;
                view->nb[3] = slot_bytes_ * slots;
                views.push_back(view);
            }
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
        for (size_t i = 0; i < views_[l].size(); i++) {
            for (size_t n = 0; n < views_[l][i].size(); n++)
                ggml_backend_tensor_alloc(buffer_.get(), views_[l][i][n],
                                          static_cast<char*>(base) + offsets_[l][i][n]);
        }
    }
    return {};
}

ggml_tensor* SlotViews::one(ggml_context* ctx, uint32_t layer, uint32_t slice, ExpertIndex expert,
                            uint32_t slot) const {
    BEVY_ASSERT(slot < slots_);
    ggml_tensor* every = all(layer, slice, phase(layer, expert));
    return ggml_view_2d(ctx, every, every->ne[0], every->ne[1], every->nb[1], slot * slot_bytes_);
}

SlotLayout packed_slot_layout(const std::vector<MoeBlock>& layers) {
    SlotLayout layout;
    for (const MoeBlock& layer : layers) {
        uint64_t end = 0;
        std::vector<SlotSlice>& slices = layout.layers.emplace_back();
        for (const ExpertMatrix& matrix : layer.slices) {
            slices.push_back({.offsets = {end}});
            end = round_up(end + matrix.bytes(), kSliceAlignment);
        }
        layout.slot_bytes = std::max(layout.slot_bytes, round_up(end, 4 * kKiB));
    }
    return layout;
}

}  // namespace bevy
