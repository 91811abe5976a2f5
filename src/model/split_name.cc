#include "model/split_name.h"

#include <charconv>
#include <string_view>

namespace bevy {

namespace {

constexpr size_t kDigits = 5;
constexpr std::string_view kOf = "-of-";
constexpr std::string_view kExtension = ".gguf";

std::optional<uint32_t> parse_digits(std::string_view text) {
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc{} || end != text.data() + text.size())
        return std::nullopt;
    return value;
}

std::string digits(uint32_t value) {
    std::string text = std::to_string(value);
    return text.size() < kDigits ? std::string(kDigits - text.size(), '0') + text : text;
}

}  // namespace

std::optional<SplitName> parse_split_name(const std::string& path) {
    constexpr size_t kTail = 1 + kDigits + kOf.size() + kDigits + kExtension.size();
    if (path.size() < kTail)
        return std::nullopt;
    const std::string_view tail = std::string_view(path).substr(path.size() - kTail);
    if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf ||
        !tail.ends_with(kExtension))
        return std::nullopt;
    const std::optional<uint32_t> number = parse_digits(tail.substr(1, kDigits));
    const std::optional<uint32_t> count =
        parse_digits(tail.substr(1 + kDigits + kOf.size(), kDigits));
    if (!number || !count || *number == 0 || *number > *count)
        return std::nullopt;
    return SplitName{path.substr(0, path.size() - kTail), *number - 1, *count};
}

std::string split_path(const std::string& prefix, uint32_t number, uint32_t count) {
    return prefix + "-" + digits(number + 1) + std::string(kOf) + digits(count) +
           std::string(kExtension);
}

}  // namespace bevy
