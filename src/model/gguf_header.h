// The head of one GGUF file: its keys and its list of tensors, validated. See model_file.h for
// whole models. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/metadata.h"
#include "model/model_file.h"

namespace bevy {

// Where a key lies: its name, type and value, encoded.
struct GgufKeyBytes {
    std::string name;
    uint64_t offset = 0;  // from the start of the file
    uint64_t bytes = 0;
};

struct GgufHeader {
    std::map<std::string, MetadataValue, std::less<>> values;
    std::vector<GgufKeyBytes> key_bytes;  // in file order
    std::vector<TensorInfo> tensors;      // in file order; TensorInfo::file is 0
    uint64_t file_bytes = 0;
};

// Errors: as ModelFile::open, for this file alone.
Result<GgufHeader> read_gguf_header(const std::string& path);

}  // namespace bevy
