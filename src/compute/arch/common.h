// What the architectures' files share: keys and tensors that most of them have.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "compute/arch/arch.h"

namespace bevy {

// Reads the keys that every supported architecture has: sizes, heads, experts, norm, rope with its
// scaling. Checks ranges and that they fit each other.
Result<ModelShape> read_common_shape(const Metadata& metadata);
void write_common_shape(const ModelShape& shape, MetadataWriter& writer);

// "blk.<block>.<suffix>".
TensorSpec block_tensor(uint32_t block, std::string_view suffix, std::vector<int64_t> dims,
                        TensorRole role);

}  // namespace bevy
