// Writes a GGUF file (version 3), or a split model, front to back in a few MB of memory.
//
// Order: construct; keys and tensors in any order; begin_data; the weights of all tensors in the
// order in which they were added, in pieces of any size; finish. The files are called NAME.part
// until finish() has put them on the disk and renamed them; a writer that goes before that removes
// them. So a file with the final name is always complete.
//
// After a failed call the writer can only be destroyed. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "model/gguf_format.h"
#include "model/metadata.h"
#include "model/part_file.h"

namespace bevy {

// What was written: one file, or the shards of a split model.
struct WrittenModel {
    std::vector<std::string> paths;
    uint64_t weight_bytes = 0;
};

class GgufWriter final : public MetadataWriter {
public:
    struct Options {
        std::string path;  // of a split model: NAME.gguf stands for NAME-00001-of-0000N.gguf
        std::string architecture;
        bool overwrite = false;          // false: an existing file is an error
        uint32_t tensors_per_shard = 0;  // 0: one file
    };
    // Writes the key general.architecture. Touches the disk only in begin_data().
    explicit GgufWriter(Options options);

    // "{arch}" in a key stands for the architecture. REQUIRES: before begin_data(); a key is set
    // once.
    void set_u32(std::string_view key, uint32_t value) override;
    void set_f32(std::string_view key, float value) override;
    void set_bool(std::string_view key, bool value) override;
    void set_str(std::string_view key, std::string_view value) override;
    void set_i32_array(std::string_view key, std::span<const int32_t> values) override;
    void set_f32_array(std::string_view key, std::span<const float> values);
    void set_str_array(std::string_view key, std::span<const std::string> values);
    // A key with name, type and value as another file of the same version holds them.
    void set_encoded(std::string_view key, std::string_view encoded);

    // Error: kInvalidArgument for a name, type or dimensions that a GGUF can't hold, or a name
    // twice.
    Status add_tensor(std::string_view name, int32_t type, std::span<const int64_t> dims);
    uint64_t data_bytes() const { return data_bytes_; }  // of all tensors added so far

    // Opens and writes the heads. Errors: kInvalidArgument (the file exists), kIo (also: disk
    // full).
    Status begin_data();
    // The next bytes of weights; they may end one tensor and begin the next.
    // REQUIRES: no more than data_bytes() in all.
    Status write(std::span<const std::byte> bytes);
    // REQUIRES: all weights have been written.
    Status finish();

    // The final names, in order; known from begin_data() on.
    const std::vector<std::string>& paths() const { return paths_; }

private:
    struct Tensor {
        std::string name;
        int32_t type = 0;
        std::vector<int64_t> dims;
        uint64_t bytes = 0;
    };

    std::string& begin_key(std::string_view key, GgufType type);
    void count_key(std::string name);
    size_t shard_of(size_t tensor) const;
    std::string shard_head(size_t shard) const;
    Status begin_shard(size_t shard);
    Status pad_tensor();

    Options options_;
    std::string keys_;  // encoded
    uint64_t key_count_ = 0;
    std::unordered_set<std::string> key_names_;
    std::vector<Tensor> tensors_;
    std::unordered_set<std::string> tensor_names_;
    uint64_t data_bytes_ = 0;
    std::vector<std::string> paths_;
    std::vector<PartFile> files_;   // begun so far; the last one is being written
    size_t tensor_at_ = 0;          // the tensor being written
    uint64_t tensor_bytes_at_ = 0;  // of it, written
};

}  // namespace bevy
