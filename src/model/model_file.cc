#include "model/model_file.h"

#include <sys/stat.h>

#include <optional>
#include <utility>

#include "model/gguf_format.h"
#include "model/gguf_header.h"
#include "model/header_reader.h"
#include "model/split_name.h"

namespace bevy {

namespace {

constexpr size_t kMissingNamesMax = 32;

// What a shard says about the split model that it is a part of.
struct SplitKeys {
    uint32_t number = 0;  // from 0
    uint32_t count = 1;
    std::optional<uint32_t> tensors;  // of all shards
};

Result<SplitKeys> read_split_keys(const Metadata& metadata) {
    SplitKeys keys;
    const Result<uint32_t> count = metadata.u32_or(kGgufKeySplitCount, 1);
    if (!count)
        return std::unexpected(count.error());
    keys.count = *count == 0 ? 1 : *count;
    if (keys.count == 1)
        return keys;
    const Result<uint32_t> number = metadata.u32(kGgufKeySplitNo);
    if (!number)
        return std::unexpected(number.error());
    keys.number = *number;
    if (keys.number >= keys.count || keys.count > kSplitCountMax)
        return fail(ErrorCode::kCorruptFile,
                    "'" + metadata.path() + "' says that it is part " +
                        std::to_string(uint64_t{keys.number} + 1) + " of " +
                        std::to_string(keys.count),
                    "download it again");
    if (metadata.has(kGgufKeySplitTensors)) {
        const Result<uint32_t> tensors = metadata.u32(kGgufKeySplitTensors);
        if (!tensors)
            return std::unexpected(tensors.error());
        keys.tensors = *tensors;
    }
    return keys;
}

std::string file_name(const std::string& path) {
    return path.substr(path.rfind('/') + 1);
}

bool exists(const std::string& path) {
    struct stat info = {};
    return ::stat(path.c_str(), &info) == 0;
}

// The paths of all shards, in order, if all are there.
Result<std::vector<std::string>> find_shards(const std::string& path, const SplitKeys& keys) {
    const std::optional<SplitName> name = parse_split_name(path);
    if (!name || name->number != keys.number || name->count != keys.count) {
        const std::string suffix = split_path("NAME", keys.number, keys.count);
        return fail(ErrorCode::kCorruptFile,
                    "'" + path + "' says that it is part " + std::to_string(keys.number + 1) +
                        " of " + std::to_string(keys.count) + ", but it is not named so",
                    "give it its name back: " + suffix);
    }
    std::vector<std::string> paths;
    std::string missing;
    size_t missing_count = 0;
    for (uint32_t i = 0; i < keys.count; ++i) {
        paths.push_back(split_path(name->prefix, i, keys.count));
        if (exists(paths.back()))
            continue;
        if (++missing_count <= kMissingNamesMax)
            missing += (missing.empty() ? "" : ", ") + file_name(paths.back());
    }
    if (missing_count > kMissingNamesMax)
        missing += " and " + std::to_string(missing_count - kMissingNamesMax) + " more";
    if (missing_count > 0)
        return fail(ErrorCode::kNotFound,
                    "the model '" + path + "' is split into " + std::to_string(keys.count) +
                        " files, of which " + std::to_string(missing_count) +
                        " are missing: " + missing,
                    "put them into the same folder");
    return paths;
}

Status check_shard(const Metadata& metadata, uint32_t number, const SplitKeys& expected) {
    const Result<SplitKeys> keys = read_split_keys(metadata);
    if (!keys)
        return std::unexpected(keys.error());
    if (keys->number == number && keys->count == expected.count)
        return {};
    return fail(ErrorCode::kCorruptFile,
                "'" + metadata.path() + "' says that it is part " +
                    std::to_string(keys->number + 1) + " of " + std::to_string(keys->count) +
                    ", expected part " + std::to_string(number + 1) + " of " +
                    std::to_string(expected.count),
                "the files of several models may be mixed up; download this one again");
}

}  // namespace

Result<ModelFile> ModelFile::open(const std::string& path) {
    ModelFile model;
    Result<GgufHeader> given = read_gguf_header(path);
    if (!given)
        return std::unexpected(given.error());
    Metadata given_metadata(path, std::move(given->values));
    const Result<SplitKeys> keys = read_split_keys(given_metadata);
    if (!keys)
        return std::unexpected(keys.error());
    if (keys->count == 1) {
        model.metadata_ = std::move(given_metadata);
        if (Status added = model.add_file(path, std::move(*given)); !added)
            return std::unexpected(added.error());
        return model;
    }

    const Result<std::vector<std::string>> paths = find_shards(path, *keys);
    if (!paths)
        return std::unexpected(paths.error());
    for (uint32_t i = 0; i < paths->size(); ++i) {
        Result<GgufHeader> header = read_gguf_header((*paths)[i]);
        if (!header)
            return std::unexpected(header.error());
        Metadata metadata((*paths)[i], std::move(header->values));
        if (Status same = check_shard(metadata, i, *keys); !same)
            return std::unexpected(same.error());
        // The first shard holds the keys of the model; the others only say which part they are.
        if (i == 0)
            model.metadata_ = std::move(metadata);
        if (Status added = model.add_file((*paths)[i], std::move(*header)); !added)
            return std::unexpected(added.error());
    }
    if (keys->tensors && *keys->tensors != model.tensors_.size())
        return fail(ErrorCode::kCorruptFile,
                    "'" + path + "' says that the model has " + std::to_string(*keys->tensors) +
                        " tensors, but its files hold " + std::to_string(model.tensors_.size()),
                    "the files of several models may be mixed up; download them again");
    return model;
}

Status ModelFile::add_file(const std::string& path, GgufHeader header) {
    for (TensorInfo& tensor : header.tensors) {
        tensor.file = static_cast<uint32_t>(paths_.size());
        if (!by_name_.emplace(tensor.name, tensors_.size()).second)
            return fail(ErrorCode::kCorruptFile,
                        "tensor '" + printable(tensor.name) + "' is both in '" +
                            paths_[find(tensor.name)->file] + "' and in '" + path + "'",
                        "the files of several models may be mixed up; download them again");
        tensors_.push_back(std::move(tensor));
    }
    paths_.push_back(path);
    file_bytes_ += header.file_bytes;
    return {};
}

const TensorInfo* ModelFile::find(std::string_view name) const {
    const auto it = by_name_.find(std::string(name));
    return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

}  // namespace bevy
