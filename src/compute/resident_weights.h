// All weights that are not routed experts, held in one buffer of the backend for good.
//
// Construction checks a model file against its architecture's tensors; load() streams the bytes in.
// Graphs look tensors up by block and the part of the name behind "blk.N.".
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "compute/arch/arch.h"
#include "compute/tensor_store.h"
#include "model/model_file.h"

namespace bevy {

// The numbers of one slice of a MoE layer's experts: a matrix [in, out] per expert.
struct ExpertMatrix {
    ggml_type type = GGML_TYPE_F32;
    int64_t in = 0;
    int64_t out = 0;

    uint64_t bytes() const { return ggml_row_size(type, in) * static_cast<uint64_t>(out); }
};

// A block with routed experts.
struct MoeBlock {
    uint32_t block = 0;
    std::vector<ExpertMatrix> slices;  // in the order of the architecture's kExpert tensors
};

class ResidentWeights {
public:
    // (bytes done, bytes in all)
    using Progress = std::function<void(uint64_t, uint64_t)>;

    // Checks presence, dimensions and types of every tensor, expert slices included. Errors name
    // tensor, file, what was found and what was expected; a tensor that the architecture does not
    // know is kUnsupported, because leaving it out would change the model's output.
    static Result<ResidentWeights> describe(const ModelFile& file, const Architecture& architecture,
                                            const ModelShape& shape, ggml_backend_dev_t device);

    uint64_t bytes(ggml_backend_buffer_type_t type) const { return store_.bytes(type); }
    // Reads all bytes. kIo, kCorruptFile (a file ends too early) or kBudget.
    Status load(const ModelFile& file, ggml_backend_buffer_type_t type, const Progress& progress);
    // Instead of load(): addresses for measuring graphs only.
    void pretend() { store_.pretend(); }

    // Null: the file has no such tensor.
    ggml_tensor* find(std::string_view name) const { return find_in(model_, name); }
    ggml_tensor* find(uint32_t block, std::string_view suffix) const {
        return find_in(blocks_[block], suffix);
    }
    const std::vector<MoeBlock>& moe_blocks() const { return moe_blocks_; }
    // Weight bytes that one pass over `block` (or the tensors of no block) reads.
    uint64_t block_bytes(uint32_t block) const;
    uint64_t tensor_bytes(std::string_view name) const;

private:
    struct Named {
        std::string name;
        ggml_tensor* tensor;
        const TensorInfo* info;  // of the file given to describe(); only used by load()
    };

    explicit ResidentWeights(size_t tensors_max) : store_(tensors_max) {}
    static ggml_tensor* find_in(const std::vector<Named>& list, std::string_view name);
    Status add(const ModelFile& file, const TensorSpec& spec, ggml_backend_dev_t device);
    Status add_expert(const ModelFile& file, const TensorSpec& spec, const TensorInfo& info,
                      ggml_backend_dev_t device);

    TensorStore store_;
    std::vector<Named> model_;
    std::vector<std::vector<Named>> blocks_;
    std::vector<MoeBlock> moe_blocks_;
};

}  // namespace bevy
