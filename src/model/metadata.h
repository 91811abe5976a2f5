// The key-value part of a GGUF file, read with types and errors, and written.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"

namespace bevy {

// One value. Integers of any GGUF width become int64_t or uint64_t; arrays are homogeneous.
using MetadataValue = std::variant<bool, int64_t, uint64_t, double, std::string, std::vector<bool>,
                                   std::vector<int64_t>, std::vector<uint64_t>, std::vector<double>,
                                   std::vector<std::string>>;

// Any thread; immutable once filled. Keys may contain "{arch}", which stands for the value of
// general.architecture.
class Metadata {
public:
    Metadata() = default;
    Metadata(std::string path, std::map<std::string, MetadataValue, std::less<>> values);

    const std::string& path() const { return path_; }
    bool has(std::string_view key) const;
    const MetadataValue* find(std::string_view key) const;  // null: absent

    // Required values. Errors: kNotFound or kCorruptFile that name key, file and expected type.
    Result<uint32_t> u32(std::string_view key) const;  // any integer that fits
    Result<float> f32(std::string_view key) const;
    Result<std::string> str(std::string_view key) const;
    // Absent: the default. Present with a wrong type or out of range: an error.
    Result<uint32_t> u32_or(std::string_view key, uint32_t fallback) const;
    Result<float> f32_or(std::string_view key, float fallback) const;
    Result<bool> flag_or(std::string_view key, bool fallback) const;
    Result<std::string> str_or(std::string_view key, std::string_view fallback) const;
    // A number, or an array with one number per layer that are all the same (kUnsupported else).
    Result<uint32_t> u32_per_layer(std::string_view key) const;

private:
    std::string expand(std::string_view key) const;

    std::string path_;
    std::map<std::string, MetadataValue, std::less<>> values_;
};

// Collects keys for a new GGUF file. "{arch}" as above, from the architecture given at
// construction.
class MetadataWriter {
public:
    virtual ~MetadataWriter() = default;
    virtual void set_u32(std::string_view key, uint32_t value) = 0;
    virtual void set_f32(std::string_view key, float value) = 0;
    virtual void set_bool(std::string_view key, bool value) = 0;
    virtual void set_str(std::string_view key, std::string_view value) = 0;
    virtual void set_i32_array(std::string_view key, std::span<const int32_t> values) = 0;
};

}  // namespace bevy
