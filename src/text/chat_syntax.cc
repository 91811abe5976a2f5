#include "text/chat_syntax.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "text/grammar_rules.h"

namespace bevy {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kNestingMax = 64;
constexpr std::string_view kSpace = " \t\r\n";

std::string_view trimmed(std::string_view text) {
    const size_t begin = text.find_first_not_of(kSpace);
    if (begin == std::string_view::npos)
        return {};
    return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

// The JSON library writes nested values by recursion, and models write anything.
bool nested_too_deep(std::string_view text) {
    size_t depth = 0;
    for (const char c : text) {
        if (c == '[' || c == '{')
            ++depth;
        if (depth > kNestingMax)
            return true;
    }
    return false;
}

// Discarded if it is no JSON.
Json parse(std::string_view text) {
    if (nested_too_deep(text))
        return {Json::value_t::discarded};
    return Json::parse(text, nullptr, false);
}

std::string dump(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// A name as APIs allow it; a call of anything else can't be answered.
bool is_tool_name(std::string_view name) {
    return !name.empty() && name.size() <= 256 &&
           std::ranges::none_of(name, [](char c) { return c == '<' || c == '>' || c == '\n'; });
}

// Whether the tool wants this parameter as text.
bool wants_text(std::span<const ToolSchema> tools, std::string_view tool, const std::string& key) {
    const auto found = std::ranges::find(tools, tool, &ToolSchema::name);
    if (found == tools.end() || found->parameters.empty())
        return false;
    const Json schema = parse(found->parameters);
    if (!schema.is_object() || !schema.contains("properties") ||
        !schema["properties"].is_object() || !schema["properties"].contains(key))
        return false;
    const Json& property = schema["properties"][key];
    return property.is_object() && property.value("type", Json()) == "string";
}

}  // namespace

MarkScanner::Found MarkScanner::next(std::span<const std::string_view> marks) {
    size_t first = std::string::npos;
    std::optional<size_t> which;
    for (size_t i = 0; i < marks.size(); ++i) {
        const size_t at = pending_.find(marks[i]);
        if (at < first) {
            first = at;
            which = i;
        }
    }
    if (which) {
        Found found{pending_.substr(0, first), which};
        pending_.erase(0, first + marks[*which].size());
        return found;
    }
    size_t held = 0;
    for (const std::string_view mark : marks) {
        for (size_t length = std::min(mark.size() - 1, pending_.size()); length > held; --length) {
            if (pending_.ends_with(mark.substr(0, length)))
                held = length;
        }
    }
    Found found{pending_.substr(0, pending_.size() - held), std::nullopt};
    pending_.erase(0, pending_.size() - held);
    return found;
}

std::string MarkScanner::rest() {
    return std::exchange(pending_, {});
}

std::optional<std::string> read_arguments(std::string_view text) {
    if (trimmed(text).empty())
        return "{}";
    const Json json = parse(text);
    if (!json.is_object())
        return std::nullopt;
    return dump(json);
}

std::optional<ToolCall> read_hermes_call(std::string_view text) {
    const Json json = parse(text);
    if (!json.is_object() || !json.contains("name") || !json["name"].is_string())
        return std::nullopt;
    ToolCall call{.name = json["name"].get<std::string>(), .arguments = "{}"};
    if (!is_tool_name(call.name))
        return std::nullopt;
    if (json.contains("arguments")) {
        const Json& arguments = json["arguments"];
        call.arguments = arguments.is_string() ? arguments.get<std::string>() : dump(arguments);
    }
    return call;
}

std::optional<ToolCall> read_tag_call(std::string_view text, std::span<const ToolSchema> tools) {
    constexpr std::string_view kFunction = "<function=";
    constexpr std::string_view kParameter = "<parameter=";
    constexpr std::string_view kParameterEnd = "</parameter>";
    const auto take_name = [&](std::string_view mark) -> std::optional<std::string_view> {
        const size_t begin = text.find(mark);
        const size_t end = begin == std::string_view::npos ? begin : text.find('>', begin);
        if (end == std::string_view::npos)
            return std::nullopt;
        const std::string_view name = text.substr(begin + mark.size(), end - begin - mark.size());
        text.remove_prefix(end + 1);
        return name;
    };
    const std::optional<std::string_view> name = take_name(kFunction);
    if (!name || !is_tool_name(*name))
        return std::nullopt;
    Json arguments = Json::object();
    while (text.contains(kParameter)) {
        const std::optional<std::string_view> key = take_name(kParameter);
        const size_t end = text.find(kParameterEnd);
        if (!key || end == std::string_view::npos)
            return std::nullopt;
        std::string_view value = text.substr(0, end);
        text.remove_prefix(end + kParameterEnd.size());
        // One newline belongs to the tags on either side.
        if (value.starts_with('\n'))
            value.remove_prefix(1);
        if (value.ends_with('\n'))
            value.remove_suffix(1);
        Json json = wants_text(tools, *name, std::string(*key)) ? Json(Json::value_t::discarded)
                                                                : parse(value);
        arguments[std::string(*key)] = json.is_discarded() ? Json(value) : std::move(json);
    }
    return ToolCall{.name = std::string(*name), .arguments = dump(arguments)};
}

std::string forced_tag_grammar(std::span<const ToolSchema> tools, const GrammarFrame& outer) {
    std::string names;
    for (const ToolSchema& tool : tools)
        names += (names.empty() ? "" : " | ") + grammar_literal(tool.name);
    GrammarRules rules;
    rules.add("root", outer.before + R"( "<tool_call>\n<function=" ( )" + names +
                          R"( ) ">\n" parameter* "</function>\n</tool_call>")");
    rules.add("parameter", R"("<parameter=" [a-zA-Z0-9_.-]{1,64} ">\n" thoughts "</parameter>\n")");
    return rules.text();
}

}  // namespace bevy
