// The numbers of the GGUF file format, as in ggml's gguf.h.
#pragma once

#include <cstdint>
#include <string_view>

namespace bevy {

constexpr std::string_view kGgufMagic = "GGUF";
constexpr uint32_t kGgufVersionOldest = 2;  // version 1 had 32-bit counts
constexpr uint32_t kGgufVersion = 3;
constexpr uint64_t kGgufAlignmentDefault = 32;
constexpr uint32_t kGgufDimensionsMax = 4;
constexpr size_t kGgufTensorNameMax = 63;  // bytes; ggml_tensor has room for 64 with the final zero

constexpr std::string_view kGgufKeyAlignment = "general.alignment";
constexpr std::string_view kGgufKeyArchitecture = "general.architecture";
constexpr std::string_view kGgufKeySplitNo = "split.no";
constexpr std::string_view kGgufKeySplitCount = "split.count";
constexpr std::string_view kGgufKeySplitTensors = "split.tensors.count";

enum class GgufType : uint32_t {
    kU8 = 0,
    kI8 = 1,
    kU16 = 2,
    kI16 = 3,
    kU32 = 4,
    kI32 = 5,
    kF32 = 6,
    kBool = 7,
    kString = 8,
    kArray = 9,
    kU64 = 10,
    kI64 = 11,
    kF64 = 12,
};

}  // namespace bevy
