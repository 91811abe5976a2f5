// What ggml knows about the types of tensors, asked safely: its own functions assert on ids that
// they do not know, and a file may hold any id. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bevy {

// Weights of a row are stored in blocks of `block_weights` that take `block_bytes` each.
struct TensorType {
    int32_t id = 0;  // enum ggml_type
    int64_t block_weights = 0;
    uint64_t block_bytes = 0;

    // REQUIRES: row_weights is a multiple of block_weights.
    uint64_t row_bytes(int64_t row_weights) const {
        return static_cast<uint64_t>(row_weights / block_weights) * block_bytes;
    }
};

// Nothing for ids that this ggml does not know or no longer supports.
std::optional<TensorType> find_tensor_type(int32_t id);

// By name, upper or lower case: "Q4_K", "q4_K", "f16", "mxfp4". Nothing when unknown.
std::optional<TensorType> find_tensor_type(std::string_view name);

}  // namespace bevy
