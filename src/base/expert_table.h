// Where every routed expert lies in the model's files: plain data, shared by the folders that read,
// place and compute experts.
//
// An expert is one range of bytes (an extent) per weight slice: gate, up, down, or a fused gate_up
// and down. All experts of one slice of one layer lie behind each other in one file; slices of a
// layer may lie in different files, and sizes may differ from layer to layer (mixed quantisation).
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace bevy {

struct Extent {
    uint32_t file =
        0;  // index into ExpertTable's file list, as the opener of the model numbered them
    uint64_t offset = 0;  // bytes from the start of the file
    uint64_t length = 0;  // bytes
};

// One slice of all experts of one layer.
struct ExpertSlice {
    uint32_t file = 0;
    uint64_t offset = 0;            // of expert 0
    uint64_t bytes_per_expert = 0;  // also the distance between neighbours

    Extent extent(ExpertIndex expert) const {
        return {file, offset + expert.value * bytes_per_expert, bytes_per_expert};
    }
};

struct LayerExperts {
    std::vector<ExpertSlice> slices;  // in the architecture's order; same count in every layer

    uint64_t bytes_per_expert() const {
        uint64_t bytes = 0;
        for (const ExpertSlice& slice : slices)
            bytes += slice.bytes_per_expert;
        return bytes;
    }
};

struct ExpertTable {
    uint32_t experts_per_layer = 0;
    std::vector<LayerExperts> layers;  // indexed by LayerIndex

    uint32_t expert_count() const {
        return experts_per_layer * static_cast<uint32_t>(layers.size());
    }
    ExpertId id(LayerIndex layer, ExpertIndex expert) const {
        return ExpertId(layer.value * experts_per_layer + expert.value);
    }
    LayerIndex layer_of(ExpertId id) const { return LayerIndex(id.value / experts_per_layer); }
    ExpertIndex index_of(ExpertId id) const { return ExpertIndex(id.value % experts_per_layer); }
    uint64_t total_bytes() const {
        uint64_t bytes = 0;
        for (const LayerExperts& layer : layers)
            bytes += layer.bytes_per_expert() * experts_per_layer;
        return bytes;
    }
};

}  // namespace bevy
