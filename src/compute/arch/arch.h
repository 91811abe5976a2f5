// What one model architecture is: its shape, its tensors and its graphs. One file per architecture,
// in these three parts, and one row in registry.cc. Nothing outside arch/ asks for an
// architecture's name.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/metadata.h"
#include "model/model_shape.h"

namespace bevy {

enum class TensorRole : uint8_t {
    kEmbedding,  // token_embd
    kMatrix,     // a quantisable resident matrix
    kHead,       // output; may be absent when tied
    kNorm,       // F32 vector of scale factors
    kVector,     // other F32 vector or matrix (bias, sinks, router)
    kExpert,     // routed experts' slice [in, out, experts]: lives in slots, never resident
};

struct TensorSpec {
    std::string name;
    std::vector<int64_t> dims;  // ggml order: dims[0] is contiguous
    TensorRole role = TensorRole::kMatrix;
    bool optional = false;
    int32_t layer = -1;  // block number, -1 for tensors of the whole model
};

class ArchitectureGraphs;  // part 3, defined in compute/arch/graphs.h

struct Architecture {
    std::string_view name;  // general.architecture
    // Part 1. Reads and checks the hyperparameters; errors name key, file and expected range.
    Result<ModelShape> (*read_shape)(const Metadata& metadata);
    // Part 2. Every tensor that a file of this shape has. Used to check files and to write random
    // ones.
    std::vector<TensorSpec> (*tensors)(const ModelShape& shape);
    // Metadata keys that a file of this shape carries besides the general ones (for make-model).
    void (*write_shape)(const ModelShape& shape, MetadataWriter& writer);
    // What a random model has besides the numbers that its maker chose (for make-model).
    void (*complete_shape)(ModelShape& shape);
    // Part 3. Builds ggml graphs for the layers.
    const ArchitectureGraphs* graphs;
};

std::span<const Architecture> architectures();
// kUnsupported with the list of supported ones.
Result<const Architecture*> find_architecture(std::string_view name);

}  // namespace bevy
