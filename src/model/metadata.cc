#include "model/metadata.h"

#include <cmath>
#include <limits>
#include <utility>

namespace bevy {

namespace {

constexpr std::string_view kArchitectureKey = "general.architecture";
constexpr std::string_view kPlaceholder = "{arch}";

std::string_view kind_of(const MetadataValue& value) {
    static constexpr std::string_view kKinds[] = {"a bool",
                                                  "an integer",
                                                  "an unsigned integer",
                                                  "a floating-point number",
                                                  "a string",
                                                  "an array of bools",
                                                  "an array of integers",
                                                  "an array of unsigned integers",
                                                  "an array of floating-point numbers",
                                                  "an array of strings"};
    static_assert(std::size(kKinds) == std::variant_size_v<MetadataValue>);
    return kKinds[value.index()];
}

std::optional<uint32_t> as_u32(int64_t value) {
    if (value < 0 || value > std::numeric_limits<uint32_t>::max())
        return std::nullopt;
    return static_cast<uint32_t>(value);
}

std::optional<uint32_t> as_u32(uint64_t value) {
    if (value > std::numeric_limits<uint32_t>::max())
        return std::nullopt;
    return static_cast<uint32_t>(value);
}

std::optional<uint32_t> as_u32(const MetadataValue& value) {
    if (const auto* i = std::get_if<int64_t>(&value))
        return as_u32(*i);
    if (const auto* u = std::get_if<uint64_t>(&value))
        return as_u32(*u);
    return std::nullopt;
}

std::optional<float> as_f32(const MetadataValue& value) {
    const auto* d = std::get_if<double>(&value);
    if (!d || !std::isfinite(*d) || std::abs(*d) > double{std::numeric_limits<float>::max()})
        return std::nullopt;
    return static_cast<float>(*d);
}

// What stands in the file, for an error message.
std::string describe(const MetadataValue& value) {
    std::string text(kind_of(value));
    if (const auto* i = std::get_if<int64_t>(&value))
        text += " (" + std::to_string(*i) + ")";
    else if (const auto* u = std::get_if<uint64_t>(&value))
        text += " (" + std::to_string(*u) + ")";
    else if (const auto* d = std::get_if<double>(&value))
        text += " (" + std::to_string(*d) + ")";
    return text;
}

std::unexpected<Error> missing_key(const std::string& path, const std::string& key) {
    return fail(ErrorCode::kNotFound, "'" + path + "' has no metadata key '" + key + "'",
                "the file may be made for another program or by an old converter; convert the "
                "model again or get another GGUF of it");
}

std::unexpected<Error> wrong_type(const std::string& path, const std::string& key,
                                  const MetadataValue& value, std::string_view expected) {
    return fail(ErrorCode::kCorruptFile,
                "metadata key '" + key + "' of '" + path + "' is " + describe(value) +
                    ", expected " + std::string(expected),
                "convert the model again or get another GGUF of it");
}

template <class T>
Result<uint32_t> same_in_every_layer(const std::string& path, const std::string& key,
                                     const std::vector<T>& numbers, const MetadataValue& value) {
    constexpr std::string_view kExpected = "32-bit unsigned integers, one per layer";
    if (numbers.empty())
        return wrong_type(path, key, value, kExpected);
    for (const T number : numbers) {
        if (number != numbers.front())
            return fail(ErrorCode::kUnsupported,
                        "metadata key '" + key + "' of '" + path + "' differs between layers (" +
                            std::to_string(numbers.front()) + " and " + std::to_string(number) +
                            ")",
                        "only models whose layers are alike in this respect can be run");
    }
    const std::optional<uint32_t> number = as_u32(numbers.front());
    if (!number)
        return wrong_type(path, key, value, kExpected);
    return *number;
}

}  // namespace

Metadata::Metadata(std::string path, std::map<std::string, MetadataValue, std::less<>> values)
    : path_(std::move(path)), values_(std::move(values)) {}

std::string Metadata::expand(std::string_view key) const {
    std::string expanded(key);
    const size_t at = expanded.find(kPlaceholder);
    if (at == std::string::npos)
        return expanded;
    const auto architecture = values_.find(kArchitectureKey);
    if (architecture == values_.end())
        return expanded;
    if (const auto* name = std::get_if<std::string>(&architecture->second))
        expanded.replace(at, kPlaceholder.size(), *name);
    return expanded;
}

bool Metadata::has(std::string_view key) const {
    return find(key) != nullptr;
}

const MetadataValue* Metadata::find(std::string_view key) const {
    const auto it = values_.find(expand(key));
    return it == values_.end() ? nullptr : &it->second;
}

Result<uint32_t> Metadata::u32(std::string_view key) const {
    const MetadataValue* value = find(key);
    if (!value)
        return missing_key(path_, expand(key));
    const std::optional<uint32_t> number = as_u32(*value);
    if (!number)
        return wrong_type(path_, expand(key), *value, "a 32-bit unsigned integer");
    return *number;
}

Result<float> Metadata::f32(std::string_view key) const {
    const MetadataValue* value = find(key);
    if (!value)
        return missing_key(path_, expand(key));
    const std::optional<float> number = as_f32(*value);
    if (!number)
        return wrong_type(path_, expand(key), *value, "a finite floating-point number");
    return *number;
}

Result<std::string> Metadata::str(std::string_view key) const {
    const MetadataValue* value = find(key);
    if (!value)
        return missing_key(path_, expand(key));
    const auto* text = std::get_if<std::string>(value);
    if (!text)
        return wrong_type(path_, expand(key), *value, "a string");
    return *text;
}

Result<uint32_t> Metadata::u32_or(std::string_view key, uint32_t fallback) const {
    if (!has(key))
        return fallback;
    return u32(key);
}

Result<float> Metadata::f32_or(std::string_view key, float fallback) const {
    if (!has(key))
        return fallback;
    return f32(key);
}

Result<bool> Metadata::flag_or(std::string_view key, bool fallback) const {
    const MetadataValue* value = find(key);
    if (!value)
        return fallback;
    const auto* flag = std::get_if<bool>(value);
    if (!flag)
        return wrong_type(path_, expand(key), *value, "a bool");
    return *flag;
}

Result<std::string> Metadata::str_or(std::string_view key, std::string_view fallback) const {
    if (!has(key))
        return std::string(fallback);
    return str(key);
}

Result<uint32_t> Metadata::u32_per_layer(std::string_view key) const {
    const MetadataValue* value = find(key);
    if (!value)
        return missing_key(path_, expand(key));
    if (const auto* numbers = std::get_if<std::vector<int64_t>>(value))
        return same_in_every_layer(path_, expand(key), *numbers, *value);
    if (const auto* numbers = std::get_if<std::vector<uint64_t>>(value))
        return same_in_every_layer(path_, expand(key), *numbers, *value);
    return u32(key);
}

}  // namespace bevy
