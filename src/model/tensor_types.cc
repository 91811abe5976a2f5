#include "model/tensor_types.h"

#include <ggml.h>

#include <algorithm>

#include "model/model_file.h"

namespace bevy {

namespace {

char upper(char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
}

std::string upper(std::string_view text) {
    std::string result(text);
    std::ranges::transform(result, result.begin(), [](char c) { return upper(c); });
    return result;
}

}  // namespace

std::optional<TensorType> find_tensor_type(int32_t id) {
    if (id < 0 || id >= GGML_TYPE_COUNT)
        return std::nullopt;
    const auto type = static_cast<ggml_type>(id);
    // Types that were removed from ggml keep their number, with empty blocks.
    const int64_t block_weights = ggml_blck_size(type);
    const size_t block_bytes = ggml_type_size(type);
    if (block_weights <= 0 || block_bytes == 0)
        return std::nullopt;
    return TensorType{id, block_weights, block_bytes};
}

std::optional<TensorType> find_tensor_type(std::string_view name) {
    const std::string wanted = upper(name);
    for (int32_t id = 0; id < GGML_TYPE_COUNT; ++id) {
        const std::optional<TensorType> type = find_tensor_type(id);
        if (type && tensor_type_name(id) == wanted)
            return type;
    }
    return std::nullopt;
}

std::string tensor_type_name(int32_t type) {
    if (!find_tensor_type(type))
        return "type " + std::to_string(type);
    return upper(ggml_type_name(static_cast<ggml_type>(type)));
}

}  // namespace bevy
