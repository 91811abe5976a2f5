// Finds the bytes of every routed expert in an opened model: the table that storage/ reads by, and
// the types and dimensions that compute/ multiplies with. Reads nothing; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/expert_table.h"
#include "model/model_file.h"

namespace bevy {

// The matrix of one expert within a slice. Dimensions in ggml's order: ne0 is the input,
// contiguous.
struct ExpertSliceInfo {
    int32_t type = 0;  // enum ggml_type; may differ from layer to layer
    int64_t ne0 = 0;
    int64_t ne1 = 0;
    uint64_t row_bytes = 0;
};

struct IndexedExperts {
    ExpertTable table;
    std::vector<std::vector<ExpertSliceInfo>> slices;  // [LayerIndex][slice], as in `table`
};

// `layer_slices` names, for each MoE layer in order, the tensors [ne0, ne1, experts] of its slices
// in the architecture's order. `experts` is the count that the metadata promise. Within one slice
// the dimensions must be the same in all layers; types need not be. Errors: kNotFound (a tensor is
// missing), kCorruptFile (counts or dimensions contradict each other).
Result<IndexedExperts> index_experts(const ModelFile& model,
                                     std::span<const std::vector<std::string>> layer_slices,
                                     uint32_t experts);

}  // namespace bevy
