#include "cli/option_lists.h"

#include <charconv>
#include <utility>

namespace bevy {

// An option with a parser of ours, whose error text the user sees.
void parsed_option(CLI::App& app, const char* group, const std::string& flags, const char* type,
                   const std::string& help, const std::string& shown_default,
                   std::function<Status(const std::string&)> parse) {
    app.add_option_function<std::string>(
           flags,
           [parse = std::move(parse), flags](const std::string& text) {
               if (Status status = parse(text); !status)
                   throw CLI::ValidationError(flags, status.error().message +
                                                         (status.error().hint.empty() ? "" : "; ") +
                                                         status.error().hint);
           },
           help)
        ->group(group)
        ->type_name(type)
        ->default_str(shown_default);
}

Result<uint64_t> parse_number(std::string_view text, uint64_t low, uint64_t high) {
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc{} && end == text.data() + text.size() && value >= low && value <= high)
        return value;
    return fail(ErrorCode::kInvalidArgument, "'" + std::string(text) + "' is not a whole number " +
                                                 std::to_string(low) + " .. " +
                                                 std::to_string(high));
}

Status add_name(std::string_view text, std::vector<std::string>& names) {
    if (text.empty())
        return fail(ErrorCode::kInvalidArgument, "an empty name in a list");
    names.emplace_back(text);
    return {};
}

Status add_parallel(std::string_view text, std::vector<uint32_t>& field) {
    const Result<uint64_t> value = parse_number(text, 1, 1024);
    if (!value)
        return std::unexpected(value.error());
    field.push_back(static_cast<uint32_t>(*value));
    return {};
}

Status add_cache(std::string_view text, std::vector<CacheSize>& field) {
    const Result<CacheSize> size = parse_cache_size(text);
    if (!size)
        return std::unexpected(size.error());
    field.push_back(*size);
    return {};
}

std::string joined(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names)
        text += (text.empty() ? "" : ", ") + name;
    return text;
}

}  // namespace bevy
