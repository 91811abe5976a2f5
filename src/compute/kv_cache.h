// The attention memory of all sequences: per block one K and one V matrix, with a row per position
// of every sequence, allocated and zeroed at start-up.
//
// Row seq * context + position belongs to that position of that sequence. Writers scatter rows,
// readers take views of a range of positions; nothing is ever moved. Compute thread only.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "compute/tensor_store.h"
#include "model/model_shape.h"

namespace bevy {

struct KvTypes {
    ggml_type k = GGML_TYPE_F16;
    ggml_type v = GGML_TYPE_F16;
};

// The types of -ctk and -ctv by name ("f16", "q8_0" ...), checked against the model's head sizes.
Result<KvTypes> parse_kv_types(std::string_view k, std::string_view v, const ModelShape& shape);

class KvCache {
public:
    KvCache(const ModelShape& shape, KvTypes types, uint32_t sequences, uint32_t context);

    TensorStore& store() { return store_; }
    const TensorStore& store() const { return store_; }

    uint32_t context() const { return context_; }
    int64_t row(uint32_t seq, uint32_t position) const {
        return static_cast<int64_t>(seq) * context_ + position;
    }
    // Whole matrices, to scatter rows into.
    ggml_tensor* k(uint32_t block) const { return k_[block]; }
    ggml_tensor* v(uint32_t block) const { return v_[block]; }
    // [head size, positions, heads] of positions [begin, end) of one sequence.
    ggml_tensor* view_k(ggml_context* ctx, uint32_t block, uint32_t seq, uint32_t begin,
                        uint32_t end) const {
        return view(ctx, k_[block], head_size_k_, seq, begin, end);
    }
    ggml_tensor* view_v(ggml_context* ctx, uint32_t block, uint32_t seq, uint32_t begin,
                        uint32_t end) const {
        return view(ctx, v_[block], head_size_v_, seq, begin, end);
    }

private:
    ggml_tensor* view(ggml_context* ctx, ggml_tensor* matrix, uint32_t head_size, uint32_t seq,
                      uint32_t begin, uint32_t end) const;

    TensorStore store_;
    uint32_t context_;
    uint32_t heads_;
    uint32_t head_size_k_;
    uint32_t head_size_v_;
    std::vector<ggml_tensor*> k_;
    std::vector<ggml_tensor*> v_;
};

}  // namespace bevy
