// A GGUF model on disk: one file, or all shards of a split one, opened and validated.
//
// Everything is checked before ggml or libllama see the file, because they abort on inconsistent
// ones: magic, version, counts, key and tensor names, types, dimensions, offsets inside the file
// and not overlapping, shard numbering. Reads the header only, never the weights.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "model/metadata.h"

namespace bevy {

struct GgufHeader;

struct TensorInfo {
    std::string name;
    int32_t type = 0;           // enum ggml_type
    std::vector<int64_t> dims;  // ggml order, trailing ones dropped, at least one entry
    uint32_t file = 0;          // index into ModelFile::paths()
    uint64_t offset = 0;        // bytes from the start of that file
    uint64_t bytes = 0;
};

// Immutable after open(); any thread.
class ModelFile {
public:
    // `path` may be any shard of a split model (name-00002-of-00005.gguf); the others are found
    // beside it. Errors: kNotFound (file, or which shards are missing), kCorruptFile (what
    // contradicts what, where), kUnsupported (GGUF version, big-endian, unknown tensor type), kIo.
    static Result<ModelFile> open(const std::string& path);

    const Metadata& metadata() const { return metadata_; }
    const std::vector<std::string>& paths() const { return paths_; }
    std::span<const TensorInfo> tensors() const { return tensors_; }
    const TensorInfo* find(std::string_view name) const;  // null: absent
    uint64_t file_bytes() const { return file_bytes_; }   // of all shards

private:
    Status add_file(const std::string& path, GgufHeader header);

    Metadata metadata_;
    std::vector<std::string> paths_;
    std::vector<TensorInfo> tensors_;
    std::unordered_map<std::string, size_t> by_name_;
    uint64_t file_bytes_ = 0;
};

// "Q4_K", "F32" ...: ggml's name of a tensor type.
std::string tensor_type_name(int32_t type);

}  // namespace bevy
