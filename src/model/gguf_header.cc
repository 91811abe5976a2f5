#include "model/gguf_header.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <unordered_set>
#include <utility>

#include "model/gguf_format.h"
#include "model/header_reader.h"
#include "model/tensor_types.h"

namespace bevy {

namespace {

constexpr std::string_view kDamagedHint = "download it again, or convert the model again";

// Sizes of GgufType's values in the file, at least; 0: not a type.
constexpr std::array<uint64_t, 13> kTypeBytes = {1, 1, 2, 2, 4, 4, 4, 1, 8, 0, 8, 8, 8};

void fail_damaged(HeaderReader& reader, const std::string& cause) {
    reader.fail_with(ErrorCode::kCorruptFile,
                     "'" + reader.path() + "' is damaged: " + reader.context() + " " + cause,
                     std::string(kDamagedHint));
}

struct OpenFile {
    FileHandle handle;
    uint64_t bytes = 0;
};

std::unexpected<Error> fail_open(const std::string& path, int error_number) {
    switch (error_number) {
        case ENOENT:
        case ENOTDIR:
            return fail(ErrorCode::kNotFound, "model file '" + path + "' does not exist",
                        "check the path");
        case EACCES:
        case EPERM:
            return fail(ErrorCode::kIo, "no permission to read model file '" + path + "'",
                        "check the owner and mode of the file and of its folders");
        default:
            return fail(ErrorCode::kIo,
                        "can't open model file '" + path + "': " + std::strerror(error_number),
                        "check the path and the disk");
    }
}

Result<OpenFile> open_regular(const std::string& path) {
    // O_NONBLOCK, so that a named pipe without a writer does not block for ever.
    FileHandle handle(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (handle.fd() < 0)
        return fail_open(path, errno);
    struct stat info = {};
    if (::fstat(handle.fd(), &info) != 0)
        return fail_open(path, errno);
    if (S_ISDIR(info.st_mode))
        return fail(ErrorCode::kInvalidArgument, "'" + path + "' is a folder, not a model file",
                    "name the .gguf file in it (of a split model, any part)");
    if (!S_ISREG(info.st_mode))
        return fail(ErrorCode::kInvalidArgument, "'" + path + "' is not a regular file",
                    "a model is read at many places at once, so it must be a file on a disk");
    if (info.st_size == 0)
        return fail(ErrorCode::kCorruptFile, "model file '" + path + "' is empty",
                    "download it again");
    return OpenFile{std::move(handle), static_cast<uint64_t>(info.st_size)};
}

// What a file that is no GGUF looks like, and what to do about it.
struct Lookalike {
    std::string_view prefix;
    size_t at;
    std::string_view what;
    std::string_view hint;
};

constexpr std::string_view kConvertHint =
    "convert it with llama.cpp's convert_hf_to_gguf.py, or get a GGUF of this model";
constexpr std::string_view kDownloadHint = "download the file itself again";
constexpr Lookalike kLookalikes[] = {
    {"{\"", 8, "it looks like a safetensors file", kConvertHint},
    {"PK\x03\x04", 0, "it looks like a zip archive or a PyTorch checkpoint", kConvertHint},
    {"version https://git-lfs", 0, "it is a git-lfs pointer, not the file it points to",
     "run 'git lfs pull' in its folder"},
    {"<!DOCTYPE", 0, "it is a web page", kDownloadHint},
    {"<!doctype", 0, "it is a web page", kDownloadHint},
    {"<html", 0, "it is a web page", kDownloadHint},
    {"\x1f\x8b", 0, "it looks gzip-compressed", "unpack it first"},
    {"\x28\xb5\x2f\xfd", 0, "it looks zstd-compressed", "unpack it first"},
    {"lmgg", 0, "it is a model in the format before GGUF", kConvertHint},
    {"tjgg", 0, "it is a model in the format before GGUF", kConvertHint},
    {"fmgg", 0, "it is a model in the format before GGUF", kConvertHint},
    {std::string_view("\0\0\0\0", 4), 0, "it begins with zeros, as an unfinished download does",
     kDownloadHint},
};

std::unexpected<Error> fail_not_gguf(const std::string& path, std::string_view head) {
    for (const Lookalike& kind : kLookalikes) {
        if (head.size() >= kind.at && head.substr(kind.at).starts_with(kind.prefix))
            return fail(ErrorCode::kUnsupported,
                        "'" + path + "' is not a GGUF file: " + std::string(kind.what),
                        std::string(kind.hint));
    }
    return fail(ErrorCode::kUnsupported,
                "'" + path + "' is not a GGUF file: it does not begin with 'GGUF'",
                "check the path, or download it again");
}

Status check_magic(const OpenFile& file, const std::string& path) {
    std::array<char, 32> head = {};
    ssize_t got = 0;
    do {
        got = ::pread(file.handle.fd(), head.data(), head.size(), 0);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return fail(ErrorCode::kIo, "can't read '" + path + "': " + std::strerror(errno),
                    "check the disk and the file system");
    const std::string_view text(head.data(), static_cast<size_t>(got));
    if (!text.starts_with(kGgufMagic))
        return fail_not_gguf(path, text);
    return {};
}

// Both values of a number fit into one of the wide types of MetadataValue.
MetadataValue read_scalar(HeaderReader& reader, GgufType type) {
    switch (type) {
        case GgufType::kU8:
            return uint64_t{reader.u8()};
        case GgufType::kU16:
            return uint64_t{reader.u16()};
        case GgufType::kU32:
            return uint64_t{reader.u32()};
        case GgufType::kU64:
            return reader.u64();
        case GgufType::kI8:
            return int64_t{static_cast<int8_t>(reader.u8())};
        case GgufType::kI16:
            return int64_t{static_cast<int16_t>(reader.u16())};
        case GgufType::kI32:
            return int64_t{static_cast<int32_t>(reader.u32())};
        case GgufType::kI64:
            return static_cast<int64_t>(reader.u64());
        case GgufType::kF32:
            return double{std::bit_cast<float>(reader.u32())};
        case GgufType::kF64:
            return std::bit_cast<double>(reader.u64());
        case GgufType::kBool:
            return reader.u8() != 0;
        case GgufType::kString:
            return reader.str();
        case GgufType::kArray:
            break;
    }
    fail_damaged(reader,
                 "has a value of unknown type " + std::to_string(static_cast<uint32_t>(type)));
    return false;
}

template <class T>
std::vector<T> read_items(HeaderReader& reader, GgufType type, uint64_t count) {
    std::vector<T> items;
    items.reserve(count);
    for (uint64_t i = 0; i < count && !reader.failed(); ++i)
        items.push_back(std::get<T>(read_scalar(reader, type)));
    return items;
}

MetadataValue read_array(HeaderReader& reader) {
    const uint32_t raw_type = reader.u32();
    const uint64_t count = reader.u64();
    const auto type = static_cast<GgufType>(raw_type);
    if (!reader.failed() && type == GgufType::kArray)
        fail_damaged(reader, "is an array of arrays, which GGUF does not have");
    else if (!reader.failed() && raw_type >= kTypeBytes.size())
        fail_damaged(reader, "is an array of unknown type " + std::to_string(raw_type));
    if (reader.failed() || !reader.check_count(count, kTypeBytes[raw_type], "array elements"))
        return false;
    switch (type) {
        case GgufType::kU8:
        case GgufType::kU16:
        case GgufType::kU32:
        case GgufType::kU64:
            return read_items<uint64_t>(reader, type, count);
        case GgufType::kI8:
        case GgufType::kI16:
        case GgufType::kI32:
        case GgufType::kI64:
            return read_items<int64_t>(reader, type, count);
        case GgufType::kF32:
        case GgufType::kF64:
            return read_items<double>(reader, type, count);
        case GgufType::kBool:
            return read_items<bool>(reader, type, count);
        default:
            return read_items<std::string>(reader, type, count);
    }
}

// Names go into C strings and messages; control bytes in them are never meant.
bool is_clean_name(std::string_view name) {
    return !name.empty() && std::ranges::none_of(name, [](char c) {
        return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
    });
}

// ggml aborts when the alignment has any other type than this one.
uint64_t check_alignment(HeaderReader& reader, GgufType type, const MetadataValue& value) {
    if (reader.failed())
        return kGgufAlignmentDefault;
    if (type != GgufType::kU32) {
        fail_damaged(reader, "is not a 32-bit unsigned integer");
        return kGgufAlignmentDefault;
    }
    const uint64_t alignment = std::get<uint64_t>(value);
    if (!std::has_single_bit(alignment)) {
        fail_damaged(reader, "is " + std::to_string(alignment) + ", not a power of two");
        return kGgufAlignmentDefault;
    }
    return alignment;
}

// Returns the alignment.
uint64_t read_keys(HeaderReader& reader, uint64_t count, GgufHeader& header) {
    uint64_t alignment = kGgufAlignmentDefault;
    for (uint64_t i = 0; i < count && !reader.failed(); ++i) {
        reader.set_context("metadata key " + std::to_string(i + 1) + " of " +
                           std::to_string(count));
        const uint64_t offset = reader.position();
        std::string key = reader.str();
        const uint32_t raw_type = reader.u32();
        if (reader.failed())
            break;
        if (!is_clean_name(key)) {
            fail_damaged(reader, "has the impossible name '" + printable(key) + "'");
            break;
        }
        reader.set_context("metadata key '" + printable(key) + "'");
        const auto type = static_cast<GgufType>(raw_type);
        MetadataValue value =
            type == GgufType::kArray ? read_array(reader) : read_scalar(reader, type);
        if (key == kGgufKeyAlignment)
            alignment = check_alignment(reader, type, value);
        header.key_bytes.push_back({key, offset, reader.position() - offset});
        if (!header.values.emplace(std::move(key), std::move(value)).second)
            fail_damaged(reader, "is there twice");
    }
    return alignment;
}

// Bytes of a tensor, or a description of what is wrong with it.
std::expected<uint64_t, std::string> tensor_bytes(const TensorInfo& tensor) {
    const std::optional<TensorType> type = find_tensor_type(tensor.type);
    if (!type)
        return std::unexpected("has the unknown type " + std::to_string(tensor.type));
    int64_t weights = 1;
    for (const int64_t dim : tensor.dims) {
        if (dim < 1)
            return std::unexpected("has a dimension of " + std::to_string(dim));
        if (__builtin_mul_overflow(weights, dim, &weights))
            return std::unexpected("is larger than any memory");
    }
    if (tensor.dims[0] % type->block_weights != 0)
        return std::unexpected("has rows of " + std::to_string(tensor.dims[0]) + " weights, but " +
                               tensor_type_name(tensor.type) + " needs a multiple of " +
                               std::to_string(type->block_weights));
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(weights / type->block_weights),
                               type->block_bytes, &bytes))
        return std::unexpected("is larger than any memory");
    return bytes;
}

// `offset` is still counted from the start of the data.
TensorInfo read_tensor(HeaderReader& reader, uint64_t alignment) {
    TensorInfo tensor;
    tensor.name = reader.str();
    if (reader.failed())
        return tensor;
    if (!is_clean_name(tensor.name) || tensor.name.size() > kGgufTensorNameMax) {
        fail_damaged(reader, "has the impossible name '" + printable(tensor.name) + "'");
        return tensor;
    }
    reader.set_context("tensor '" + printable(tensor.name) + "'");
    const uint32_t dimensions = reader.u32();
    if (!reader.failed() && dimensions > kGgufDimensionsMax)
        fail_damaged(reader, "has " + std::to_string(dimensions) + " dimensions, more than " +
                                 std::to_string(kGgufDimensionsMax));
    for (uint32_t i = 0; i < dimensions && !reader.failed(); ++i)
        tensor.dims.push_back(static_cast<int64_t>(reader.u64()));
    if (tensor.dims.empty())
        tensor.dims.push_back(1);
    while (tensor.dims.size() > 1 && tensor.dims.back() == 1)
        tensor.dims.pop_back();
    tensor.type = static_cast<int32_t>(reader.u32());
    tensor.offset = reader.u64();
    if (reader.failed())
        return tensor;
    if (!find_tensor_type(tensor.type)) {
        reader.fail_with(ErrorCode::kUnsupported,
                         "'" + reader.path() + "': " + reader.context() + " has the unknown type " +
                             std::to_string(tensor.type),
                         "the file may be newer or older than this ggml; update ggml, or get the "
                         "model in another quantisation");
        return tensor;
    }
    const auto bytes = tensor_bytes(tensor);
    if (!bytes)
        fail_damaged(reader, bytes.error());
    else if (tensor.offset % alignment != 0)
        fail_damaged(reader, "begins at " + std::to_string(tensor.offset) +
                                 ", not at a multiple of " + std::to_string(alignment));
    else
        tensor.bytes = *bytes;
    return tensor;
}

// Turns offsets into those from the start of the file.
void place_tensors(HeaderReader& reader, uint64_t data_start, std::vector<TensorInfo>& tensors) {
    const TensorInfo* farthest = nullptr;
    uint64_t farthest_end = 0;
    for (TensorInfo& tensor : tensors) {
        uint64_t end = 0;
        if (__builtin_add_overflow(tensor.offset, data_start, &tensor.offset) ||
            __builtin_add_overflow(tensor.offset, tensor.bytes, &end)) {
            reader.set_context("tensor '" + printable(tensor.name) + "'");
            fail_damaged(reader, "begins at an impossible place");
            return;
        }
        if (end > farthest_end) {
            farthest_end = end;
            farthest = &tensor;
        }
    }
    if (farthest && farthest_end > reader.file_bytes()) {
        reader.fail_with(ErrorCode::kCorruptFile,
                         "'" + reader.path() + "' is truncated: tensor '" +
                             printable(farthest->name) + "' needs bytes up to " +
                             std::to_string(farthest_end) + " but the file has " +
                             std::to_string(reader.file_bytes()),
                         "download it again");
    }
}

void check_overlap(HeaderReader& reader, const std::vector<TensorInfo>& tensors) {
    std::vector<const TensorInfo*> by_offset;
    by_offset.reserve(tensors.size());
    for (const TensorInfo& tensor : tensors)
        by_offset.push_back(&tensor);
    std::ranges::sort(by_offset, {}, &TensorInfo::offset);
    for (size_t i = 1; i < by_offset.size(); ++i) {
        const TensorInfo& before = *by_offset[i - 1];
        if (before.offset + before.bytes > by_offset[i]->offset) {
            reader.set_context("tensor '" + printable(before.name) + "'");
            fail_damaged(reader, "overlaps tensor '" + printable(by_offset[i]->name) + "'");
            return;
        }
    }
}

void read_tensors(HeaderReader& reader, uint64_t count, uint64_t alignment, GgufHeader& header) {
    std::unordered_set<std::string> names;
    for (uint64_t i = 0; i < count && !reader.failed(); ++i) {
        reader.set_context("tensor " + std::to_string(i + 1) + " of " + std::to_string(count));
        TensorInfo tensor = read_tensor(reader, alignment);
        if (reader.failed())
            return;
        if (!names.insert(tensor.name).second)
            fail_damaged(reader, "is there twice");
        header.tensors.push_back(std::move(tensor));
    }
    if (!reader.failed())
        place_tensors(reader, round_up(reader.position(), alignment), header.tensors);
    if (!reader.failed())
        check_overlap(reader, header.tensors);
}

void check_version(HeaderReader& reader, uint32_t version) {
    if (reader.failed())
        return;
    // A small number in the other byte order has its two low bytes empty.
    if (version != 0 && (version & 0xffff) == 0)
        reader.fail_with(ErrorCode::kUnsupported,
                         "'" + reader.path() + "' is a big-endian GGUF file",
                         "convert it with gguf-py's gguf_convert_endian.py");
    else if (version < kGgufVersionOldest || version > kGgufVersion)
        reader.fail_with(ErrorCode::kUnsupported,
                         "'" + reader.path() + "' has GGUF version " + std::to_string(version) +
                             "; versions 2 and 3 are supported",
                         version == 1 ? "convert the model again with a current converter"
                                      : "update Bevy, or download the file again if it is damaged");
}

}  // namespace

Result<GgufHeader> read_gguf_header(const std::string& path) {
    Result<OpenFile> file = open_regular(path);
    if (!file)
        return std::unexpected(file.error());
    if (Status magic = check_magic(*file, path); !magic)
        return std::unexpected(magic.error());

    GgufHeader header;
    header.file_bytes = file->bytes;
    HeaderReader reader(std::move(file->handle), path, file->bytes);
    reader.u32();  // the magic
    check_version(reader, reader.u32());
    const uint64_t tensor_count = reader.u64();
    const uint64_t key_count = reader.u64();
    // The shortest key has an 8-byte length, one letter, a type and a value; the shortest tensor
    // adds its number of dimensions and its offset.
    if (reader.check_count(key_count, 8 + 1 + 4 + 1, "metadata keys") &&
        reader.check_count(tensor_count, 8 + 1 + 4 + 4 + 8, "tensors")) {
        const uint64_t alignment = read_keys(reader, key_count, header);
        read_tensors(reader, tensor_count, alignment, header);
    }
    if (reader.failed())
        return std::unexpected(reader.error());
    return header;
}

}  // namespace bevy
