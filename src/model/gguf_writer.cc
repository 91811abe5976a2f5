#include "model/gguf_writer.h"

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "base/units.h"
#include "model/split_name.h"
#include "model/tensor_types.h"

namespace bevy {

namespace {

constexpr std::string_view kPlaceholder = "{arch}";
constexpr std::string_view kExtension = ".gguf";

template <class T>
void put(std::string& out, T value) {
    for (size_t i = 0; i < sizeof(T); ++i)
        out += static_cast<char>(static_cast<uint8_t>(value >> (8 * i)));
}

void put_str(std::string& out, std::string_view text) {
    put<uint64_t>(out, text.size());
    out += text;
}

void put_key(std::string& out, std::string_view key, GgufType type) {
    put_str(out, key);
    put<uint32_t>(out, static_cast<uint32_t>(type));
}

void put_array_head(std::string& out, GgufType type, size_t count) {
    put<uint32_t>(out, static_cast<uint32_t>(type));
    put<uint64_t>(out, count);
}

uint64_t padding_after(uint64_t bytes) {
    return round_up(bytes, kGgufAlignmentDefault) - bytes;
}

std::unexpected<Error> bad_tensor(std::string_view name, const std::string& cause) {
    return fail(ErrorCode::kInvalidArgument,
                "tensor '" + printable(name) + "' can't be written: " + cause);
}

}  // namespace

GgufWriter::GgufWriter(Options options) : options_(std::move(options)) {
    set_str(kGgufKeyArchitecture, options_.architecture);
}

std::string& GgufWriter::begin_key(std::string_view key, GgufType type) {
    std::string expanded(key);
    if (const size_t at = expanded.find(kPlaceholder); at != std::string::npos)
        expanded.replace(at, kPlaceholder.size(), options_.architecture);
    put_key(keys_, expanded, type);
    count_key(std::move(expanded));
    return keys_;
}

void GgufWriter::count_key(std::string name) {
    BEVY_ASSERT(paths_.empty());
    const bool is_new = key_names_.insert(std::move(name)).second;
    BEVY_ASSERT(is_new);
    ++key_count_;
}

void GgufWriter::set_encoded(std::string_view key, std::string_view encoded) {
    count_key(std::string(key));
    keys_ += encoded;
}

void GgufWriter::set_u32(std::string_view key, uint32_t value) {
    put(begin_key(key, GgufType::kU32), value);
}

void GgufWriter::set_f32(std::string_view key, float value) {
    put(begin_key(key, GgufType::kF32), std::bit_cast<uint32_t>(value));
}

void GgufWriter::set_bool(std::string_view key, bool value) {
    put<uint8_t>(begin_key(key, GgufType::kBool), value ? 1 : 0);
}

void GgufWriter::set_str(std::string_view key, std::string_view value) {
    put_str(begin_key(key, GgufType::kString), value);
}

void GgufWriter::set_i32_array(std::string_view key, std::span<const int32_t> values) {
    std::string& out = begin_key(key, GgufType::kArray);
    put_array_head(out, GgufType::kI32, values.size());
    for (const int32_t value : values)
        put(out, static_cast<uint32_t>(value));
}

void GgufWriter::set_f32_array(std::string_view key, std::span<const float> values) {
    std::string& out = begin_key(key, GgufType::kArray);
    put_array_head(out, GgufType::kF32, values.size());
    for (const float value : values)
        put(out, std::bit_cast<uint32_t>(value));
}

void GgufWriter::set_str_array(std::string_view key, std::span<const std::string> values) {
    std::string& out = begin_key(key, GgufType::kArray);
    put_array_head(out, GgufType::kString, values.size());
    for (const std::string& value : values)
        put_str(out, value);
}

Status GgufWriter::add_tensor(std::string_view name, int32_t type_id,
                              std::span<const int64_t> dims) {
    BEVY_ASSERT(paths_.empty());
    if (name.empty() || name.size() > kGgufTensorNameMax)
        return bad_tensor(name, "a name has 1 to " + std::to_string(kGgufTensorNameMax) + " bytes");
    if (dims.empty() || dims.size() > kGgufDimensionsMax)
        return bad_tensor(name, "it has " + std::to_string(dims.size()) + " dimensions");
    const std::optional<TensorType> type = find_tensor_type(type_id);
    if (!type)
        return bad_tensor(name, "unknown type " + std::to_string(type_id));
    int64_t weights = 1;
    for (const int64_t dim : dims) {
        if (dim < 1 || __builtin_mul_overflow(weights, dim, &weights))
            return bad_tensor(name, "a dimension is " + std::to_string(dim));
    }
    if (dims[0] % type->block_weights != 0)
        return bad_tensor(name, "rows of " + std::to_string(dims[0]) +
                                    " weights are no multiple of the block of its type, " +
                                    std::to_string(type->block_weights));
    const int64_t blocks = weights / type->block_weights;
    uint64_t bytes = 0;
    if (__builtin_mul_overflow(static_cast<uint64_t>(blocks), type->block_bytes, &bytes) ||
        __builtin_add_overflow(data_bytes_, bytes, &data_bytes_))
        return bad_tensor(name, "it is larger than any disk");
    if (!tensor_names_.emplace(name).second)
        return bad_tensor(name, "the name is used twice");
    tensors_.push_back({std::string(name), type_id, {dims.begin(), dims.end()}, bytes});
    return {};
}

size_t GgufWriter::shard_of(size_t tensor) const {
    return options_.tensors_per_shard == 0 ? 0 : tensor / options_.tensors_per_shard;
}

std::string GgufWriter::shard_head(size_t shard) const {
    const size_t per_shard =
        options_.tensors_per_shard == 0 ? tensors_.size() : options_.tensors_per_shard;
    const size_t begin = shard * per_shard;
    const size_t end = std::min(begin + per_shard, tensors_.size());
    const bool is_split = paths_.size() > 1;

    std::string out(kGgufMagic);
    put<uint32_t>(out, kGgufVersion);
    put<uint64_t>(out, end - begin);
    put<uint64_t>(out, (shard == 0 ? key_count_ : 0) + (is_split ? 3 : 0));
    if (shard == 0)
        out += keys_;
    if (is_split) {
        put_key(out, kGgufKeySplitNo, GgufType::kU16);
        put(out, static_cast<uint16_t>(shard));
        put_key(out, kGgufKeySplitCount, GgufType::kU16);
        put(out, static_cast<uint16_t>(paths_.size()));
        put_key(out, kGgufKeySplitTensors, GgufType::kI32);
        put(out, static_cast<uint32_t>(tensors_.size()));
    }
    uint64_t offset = 0;
    for (size_t i = begin; i < end; ++i) {
        const Tensor& tensor = tensors_[i];
        put_str(out, tensor.name);
        put(out, static_cast<uint32_t>(tensor.dims.size()));
        for (const int64_t dim : tensor.dims)
            put(out, static_cast<uint64_t>(dim));
        put(out, static_cast<uint32_t>(tensor.type));
        put(out, offset);
        offset += tensor.bytes + padding_after(tensor.bytes);
    }
    out.append(padding_after(out.size()), '\0');
    return out;
}

Status GgufWriter::begin_data() {
    BEVY_ASSERT(paths_.empty());
    if (tensors_.empty())
        return fail(ErrorCode::kInvalidArgument, "'" + options_.path + "' would have no tensors");
    const size_t shards = shard_of(tensors_.size() - 1) + 1;
    if (shards > kSplitCountMax)
        return fail(
            ErrorCode::kInvalidArgument,
            "'" + options_.path + "' would be split into " + std::to_string(shards) + " files",
            "put more tensors into each; the most is " + std::to_string(kSplitCountMax));
    if (shards == 1) {
        paths_.push_back(options_.path);
    } else {
        std::string prefix = options_.path;
        if (prefix.ends_with(kExtension))
            prefix.resize(prefix.size() - kExtension.size());
        for (uint32_t i = 0; i < shards; ++i)
            paths_.push_back(split_path(prefix, i, static_cast<uint32_t>(shards)));
    }
    files_.reserve(shards);
    return begin_shard(0);
}

Status GgufWriter::begin_shard(size_t shard) {
    const std::string head = shard_head(shard);
    uint64_t bytes = head.size();
    for (size_t i = 0; i < tensors_.size(); ++i) {
        if (shard_of(i) == shard)
            bytes += tensors_[i].bytes + padding_after(tensors_[i].bytes);
    }
    Result<PartFile> file = PartFile::create(paths_[shard], options_.overwrite, bytes);
    if (!file)
        return std::unexpected(file.error());
    files_.push_back(std::move(*file));
    return files_.back().append(std::as_bytes(std::span(head)));
}

Status GgufWriter::write(std::span<const std::byte> bytes) {
    BEVY_ASSERT(!files_.empty());
    while (!bytes.empty()) {
        BEVY_ASSERT(tensor_at_ < tensors_.size());
        const uint64_t left = tensors_[tensor_at_].bytes - tensor_bytes_at_;
        const auto run = static_cast<size_t>(std::min<uint64_t>(left, bytes.size()));
        if (Status written = files_.back().append(bytes.first(run)); !written)
            return written;
        bytes = bytes.subspan(run);
        tensor_bytes_at_ += run;
        if (run == left) {
            if (Status padded = pad_tensor(); !padded)
                return padded;
        }
    }
    return {};
}

// Ends the current tensor, and with it perhaps its shard.
Status GgufWriter::pad_tensor() {
    static constexpr std::byte kZeros[kGgufAlignmentDefault] = {};
    const uint64_t padding = padding_after(tensor_bytes_at_);
    if (Status padded = files_.back().append(std::span(kZeros).first(padding)); !padded)
        return padded;
    ++tensor_at_;
    tensor_bytes_at_ = 0;
    const bool is_last = tensor_at_ == tensors_.size();
    if (!is_last && shard_of(tensor_at_) == files_.size() - 1)
        return {};
    if (Status synced = files_.back().sync(); !synced)
        return synced;
    return is_last ? Status{} : begin_shard(files_.size());
}

Status GgufWriter::finish() {
    BEVY_ASSERT(tensor_at_ == tensors_.size() && files_.size() == paths_.size());
    for (PartFile& file : files_) {
        if (Status published = file.publish(); !published)
            return published;
    }
    return {};
}

}  // namespace bevy
