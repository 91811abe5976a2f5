// How the files of a split model are named: NAME-00002-of-00005.gguf. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace bevy {

constexpr uint32_t kSplitCountMax = 65535;  // the keys in the file have 16 bits

struct SplitName {
    std::string prefix;   // path up to the number
    uint32_t number = 0;  // from 0
    uint32_t count = 0;
};

// Nothing if `path` is not named so.
std::optional<SplitName> parse_split_name(const std::string& path);

// REQUIRES: number < count <= kSplitCountMax.
std::string split_path(const std::string& prefix, uint32_t number, uint32_t count);

}  // namespace bevy
