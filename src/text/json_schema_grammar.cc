#include "text/json_schema_grammar.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <format>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "text/grammar_rules.h"
#include "text/json_schema_integers.h"

namespace bevy {
namespace {

using Json = nlohmann::ordered_json;

// libllama writes a repetition out; more would make it slow.
constexpr int64_t kRepeatMax = 2000;
constexpr size_t kRulesMax = 5000;
constexpr int kDepthMax = 64;
constexpr int64_t kIntegerMax = 999'999'999'999'999'999;

constexpr std::array kDescriptive = {
    "title", "description", "default",  "examples",  "example",    "$schema", "$id",    "$comment",
    "$defs", "definitions", "readOnly", "writeOnly", "deprecated", "name",    "strict", "nullable"};

struct Refusal {
    std::string message;
};

[[noreturn]] void refuse(const std::string& message) {
    throw Refusal{message};  // caught at the border of this file
}

class Converter {
public:
    // The rule's right side for a schema; further rules are added as needed.
    std::string convert_document(const Json& document) {
        document_ = &document;
        ++documents_;
        references_.clear();
        return convert(document, "");
    }

    void add_rule(const std::string& name, const std::string& body) {
        if (rules_.size() >= kRulesMax)
            refuse(std::format("the schema needs more than {} rules", kRulesMax));
        rules_.add(name, body);
    }

    std::string text() const { return rules_.text(); }

private:
    std::string named_rule(const std::string& body) {
        const std::string name = std::format("r{}", rules_.size());
        add_rule(name, body);
        return name;
    }

    std::string convert(const Json& schema, const std::string& where) {
        if (++depth_ > kDepthMax)
            refuse(std::format("nested deeper than {}", kDepthMax));
        std::string body = convert_checked(schema, where);
        --depth_;
        return body;
    }

    std::string convert_checked(const Json& schema, const std::string& where) {
        if (schema.is_boolean()) {
            if (!schema.get<bool>())
                refuse(place(where) + "false allows nothing");
            return "value";
        }
        if (!schema.is_object())
            refuse(place(where) + "a schema must be an object");
        if (schema.contains("$ref"))
            return reference(schema, where);
        if (schema.contains("allOf"))
            return convert(merged(schema, where), where);
        for (const char* key : {"anyOf", "oneOf"}) {
            if (schema.contains(key))
                return alternatives(schema, key, where);
        }
        if (schema.contains("const")) {
            only(schema, where, {"const", "type"});
            return grammar_literal(schema["const"].dump());
        }
        if (schema.contains("enum"))
            return enumeration(schema, where);
        return typed(schema, where);
    }

    static std::string place(const std::string& where) {
        return where.empty() ? std::string() : "at '" + where + "': ";
    }

    // Refuses every keyword that is not in the list and not descriptive.
    static void only(const Json& schema, const std::string& where,
                     std::initializer_list<std::string_view> allowed) {
        for (const auto& [key, value] : schema.items()) {
            if (!std::ranges::contains(allowed, key) && !std::ranges::contains(kDescriptive, key))
                refuse(place(where) + "'" + key + "' is not supported here");
        }
    }

    std::string reference(const Json& schema, const std::string& where) {
        only(schema, where, {"$ref"});
        const Json& target = schema["$ref"];
        if (!target.is_string() || !target.get<std::string>().starts_with("#"))
            refuse(place(where) + "'$ref' must begin with '#': only this document can be used");
        const std::string pointer = target.get<std::string>().substr(1);
        const auto known = references_.find(pointer);
        if (known != references_.end())
            return known->second;
        const Json* found = nullptr;
        try {
            found = &document_->at(Json::json_pointer(pointer));
        } catch (const std::exception&) {
            refuse(place(where) + "'$ref' names nothing: #" + pointer);
        }
        // Before it is converted: it may refer to itself.
        const std::string name = std::format("d{}-{}", documents_, references_.size());
        references_.emplace(pointer, name);
        add_rule(name, convert(*found, "#" + pointer));
        return name;
    }

    // The parts of `allOf` and the schema around it as one.
    Json merged(const Json& schema, const std::string& where) {
        Json whole = schema;
        const Json& parts = schema["allOf"];
        whole.erase("allOf");
        if (!parts.is_array())
            refuse(place(where) + "'allOf' must be an array");
        for (const Json& part : parts) {
            Json resolved = part;
            for (int i = 0; resolved.is_object() && resolved.contains("$ref"); ++i) {
                const Json& target = resolved["$ref"];
                if (i > kDepthMax || !target.is_string() || resolved.size() != 1 ||
                    !target.get<std::string>().starts_with("#"))
                    refuse(place(where) + "'allOf' has a '$ref' that can't be followed");
                Json next;
                try {
                    next = document_->at(Json::json_pointer(target.get<std::string>().substr(1)));
                } catch (const std::exception&) {
                    refuse(place(where) + "'$ref' names nothing");
                }
                resolved = std::move(next);
            }
            if (!resolved.is_object())
                refuse(place(where) + "'allOf' must hold objects");
            merge_into(whole, resolved, where);
        }
        return whole;
    }

    static void merge_into(Json& whole, const Json& part, const std::string& where) {
        for (const auto& [key, value] : part.items()) {
            if (key == "properties" && whole.contains(key) && whole[key].is_object() &&
                value.is_object()) {
                whole[key].update(value);
            } else if (key == "required" && whole.contains(key) && whole[key].is_array()) {
                for (const Json& name : value)
                    whole[key].push_back(name);
            } else if (!whole.contains(key) || whole[key] == value ||
                       std::ranges::contains(kDescriptive, key)) {
                whole[key] = value;
            } else {
                refuse(place(where) + "'allOf' has several different '" + key + "'");
            }
        }
    }

    std::string alternatives(const Json& schema, const char* key, const std::string& where) {
        only(schema, where, {key, "type"});
        const Json& parts = schema[key];
        if (!parts.is_array() || parts.empty())
            refuse(place(where) + std::format("'{}' must be an array that is not empty", key));
        std::string body = "(";
        for (size_t i = 0; i < parts.size(); ++i)
            body +=
                (i == 0 ? " " : " | ") + convert(parts[i], std::format("{}/{}/{}", where, key, i));
        return body + " )";
    }

    static std::string enumeration(const Json& schema, const std::string& where) {
        only(schema, where, {"enum", "type"});
        const Json& values = schema["enum"];
        if (!values.is_array() || values.empty())
            refuse(place(where) + "'enum' must be an array that is not empty");
        std::string body = "(";
        for (size_t i = 0; i < values.size(); ++i)
            body += (i == 0 ? " " : " | ") + grammar_literal(values[i].dump());
        return body + " )";
    }

    std::string typed(const Json& schema, const std::string& where) {
        std::vector<std::string> types;
        if (!schema.contains("type")) {
            // Words that only make sense for one type stand for it.
            if (schema.contains("properties") || schema.contains("additionalProperties"))
                types.emplace_back("object");
            else if (schema.contains("items") || schema.contains("prefixItems"))
                types.emplace_back("array");
            else
                types.emplace_back("");
        } else if (schema["type"].is_string()) {
            types.push_back(schema["type"].get<std::string>());
        } else if (schema["type"].is_array() && !schema["type"].empty()) {
            for (const Json& type : schema["type"]) {
                if (!type.is_string())
                    refuse(place(where) + "'type' must hold strings");
                types.push_back(type.get<std::string>());
            }
        } else {
            refuse(place(where) + "'type' must be a string or an array");
        }
        if (types.size() == 1)
            return of_type(schema, types.front(), where, {});
        std::string body = "(";
        for (size_t i = 0; i < types.size(); ++i)
            body += (i == 0 ? " " : " | ") + of_type(schema, types[i], where, types);
        return body + " )";
    }

    // With several types, the words of one are no mistake for another.
    std::string of_type(const Json& schema, const std::string& type, const std::string& where,
                        const std::vector<std::string>& all) {
        const auto check = [&](std::initializer_list<std::string_view> allowed) {
            if (all.empty())
                only(schema, where, allowed);
        };
        if (!all.empty())
            only(schema, where,
                 {"type", "minLength", "maxLength", "format", "minimum", "maximum",
                  "exclusiveMinimum", "exclusiveMaximum", "items", "prefixItems", "minItems",
                  "maxItems", "properties", "required", "additionalProperties"});
        if (type == "object") {
            check({"type", "properties", "required", "additionalProperties"});
            return object(schema, where);
        }
        if (type == "array") {
            check({"type", "items", "prefixItems", "minItems", "maxItems"});
            return array(schema, where);
        }
        if (type == "string") {
            check({"type", "minLength", "maxLength", "format"});
            return string(schema, where);
        }
        if (type == "integer") {
            check({"type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format"});
            return integer(schema, where);
        }
        if (type == "number") {
            check({"type", "format"});
            for (const char* key : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
                if (schema.contains(key))
                    refuse(place(where) + "'" + key + "' is supported for integers only");
            }
            return "number";
        }
        check({"type"});
        if (type == "boolean" || type == "null")
            return type;
        if (type.empty())
            return "value";
        refuse(place(where) + "unknown type '" + type + "'");
    }

    std::string object(const Json& schema, const std::string& where) {
        const Json properties = schema.value("properties", Json::object());
        if (!properties.is_object())
            refuse(place(where) + "'properties' must be an object");
        const std::vector<std::string> required = required_names(schema, where);
        for (const std::string& name : required) {
            if (!properties.contains(name))
                refuse(place(where) + "'required' names '" + name + "', which is no property");
        }
        if (properties.empty()) {
            const Json more = schema.value("additionalProperties", Json(true));
            if (more.is_boolean())
                return more.get<bool>() && !schema.contains("properties") ? "object"
                                                                          : R"("{" ws "}")";
            const std::string pair =
                named_rule("string ws \":\" ws " + convert(more, where + "/additionalProperties"));
            return std::format(R"("{{" ws ( {0} ( ws "," ws {0} )* ws )? "}}")", pair);
        }
        return members(properties, required, where);
    }

    static std::vector<std::string> required_names(const Json& schema, const std::string& where) {
        std::vector<std::string> names;
        const Json listed = schema.value("required", Json::array());
        if (!listed.is_array())
            refuse(place(where) + "'required' must be an array");
        for (const Json& name : listed) {
            if (!name.is_string())
                refuse(place(where) + "'required' must hold strings");
            names.push_back(name.get<std::string>());
        }
        return names;
    }

    // From the last property to the first: what may follow when something was written before it
    // (`later`), and when nothing was (`first`).
    std::string members(const Json& properties, const std::vector<std::string>& required,
                        const std::string& where) {
        std::string later;
        std::string first;
        std::vector<std::pair<std::string, bool>> pairs;
        for (const auto& [name, schema] : properties.items()) {
            const std::string value = convert(schema, where + "/" + name);
            pairs.emplace_back(
                named_rule(grammar_literal(Json(name).dump()) + R"( ws ":" ws )" + value),
                std::ranges::contains(required, name));
        }
        for (size_t i = pairs.size(); i-- > 0;) {
            const auto& [pair, is_required] = pairs[i];
            const std::string behind = later.empty() ? "" : " " + later;
            if (is_required)
                first = pair + behind;
            else
                first = "( " + pair + behind + (first.empty() ? " )?" : " | " + first + " )");
            first = named_rule(first);
            later = named_rule(is_required ? R"(ws "," ws )" + pair + behind
                                           : R"(( ws "," ws )" + pair + " )?" + behind);
        }
        return R"("{" ws )" + first + R"( ws "}")";
    }

    std::string array(const Json& schema, const std::string& where) {
        const int64_t min = count(schema, "minItems", 0, where);
        const int64_t max = count(schema, "maxItems", -1, where);
        if (schema.contains("prefixItems"))
            return tuple(schema, where, min, max);
        const std::string item = schema.contains("items")
                                     ? named_rule(convert(schema["items"], where + "/items"))
                                     : std::string("value");
        if (max == 0)
            return R"("[" ws "]")";
        if (max > 0 && max < min)
            refuse(place(where) + "'maxItems' is smaller than 'minItems'");
        const std::string more =
            max < 0 ? std::format("{{{},}}", std::max<int64_t>(min - 1, 0))
                    : std::format("{{{},{}}}", std::max<int64_t>(min - 1, 0), max - 1);
        return std::format(R"("[" ws ( {0} ( ws "," ws {0} ){1} ws ){2} "]")", item, more,
                           min == 0 ? "?" : "");
    }

    std::string tuple(const Json& schema, const std::string& where, int64_t min, int64_t max) {
        const Json& items = schema["prefixItems"];
        if (!items.is_array() || items.empty())
            refuse(place(where) + "'prefixItems' must be an array that is not empty");
        const auto size = static_cast<int64_t>(items.size());
        if (min > size || (max >= 0 && max < size))
            refuse(place(where) + "'minItems' and 'maxItems' must fit 'prefixItems'");
        std::string body = R"("[" ws )";
        for (size_t i = 0; i < items.size(); ++i)
            body += (i == 0 ? "" : R"( ws "," ws )") +
                    convert(items[i], std::format("{}/prefixItems/{}", where, i));
        return body + R"( ws "]")";
    }

    static int64_t count(const Json& schema, const char* key, int64_t otherwise,
                         const std::string& where) {
        if (!schema.contains(key))
            return otherwise;
        const Json& value = schema[key];
        if (!value.is_number_integer() || value < 0 || value > kRepeatMax)
            refuse(place(where) + std::format("'{}' must be between 0 and {}", key, kRepeatMax));
        return value.get<int64_t>();
    }

    static std::string string(const Json& schema, const std::string& where) {
        const int64_t min = count(schema, "minLength", 0, where);
        const int64_t max = count(schema, "maxLength", -1, where);
        if (max >= 0 && max < min)
            refuse(place(where) + "'maxLength' is smaller than 'minLength'");
        const Json format = schema.value("format", Json(""));
        for (const char* known : {"date", "time", "date-time", "uuid"}) {
            if (format == known)
                return std::format(R"("\"" {} "\"")", known);
        }
        if (min == 0 && max < 0)
            return "string";
        return max < 0 ? std::format(R"("\"" char{{{},}} "\"")", min)
                       : std::format(R"("\"" char{{{},{}}} "\"")", min, max);
    }

    static std::optional<int64_t> limit(const Json& schema, const char* key, int64_t step,
                                        const std::string& where) {
        if (!schema.contains(key))
            return std::nullopt;
        const Json& value = schema[key];
        const double number = value.is_number() ? value.get<double>() : 1e300;
        if (!(number >= -static_cast<double>(kIntegerMax) &&
              number <= static_cast<double>(kIntegerMax)) ||
            number != static_cast<double>(static_cast<int64_t>(number)))
            refuse(place(where) +
                   std::format("'{}' must be a whole number of at most 18 digits", key));
        return static_cast<int64_t>(number) + step;
    }

    static std::string integer(const Json& schema, const std::string& where) {
        std::optional<int64_t> low = limit(schema, "minimum", 0, where);
        std::optional<int64_t> high = limit(schema, "maximum", 0, where);
        const std::optional<int64_t> above = limit(schema, "exclusiveMinimum", 1, where);
        const std::optional<int64_t> below = limit(schema, "exclusiveMaximum", -1, where);
        if (above)
            low = std::max(low.value_or(*above), *above);
        if (below)
            high = std::min(high.value_or(*below), *below);
        if (!low && !high)
            return "integer";
        const int64_t from = low.value_or(-kIntegerMax);
        const int64_t to = high.value_or(kIntegerMax);
        if (from > to)
            refuse(place(where) + "no integer is within 'minimum' and 'maximum'");
        return "( " + integer_range_grammar(from, to) + " )";
    }

    const Json* document_ = nullptr;
    int documents_ = 0;
    int depth_ = 0;
    std::map<std::string, std::string> references_;  // JSON pointer to rule
    GrammarRules rules_;
};

std::string join(const std::string& before, const std::string& body, const std::string& after) {
    return (before.empty() ? "" : before + " ") + body + (after.empty() ? "" : " " + after);
}

std::string with_name(std::string text, const std::string& name) {
    constexpr std::string_view kMark = "{name}";
    for (size_t at = text.find(kMark); at != std::string::npos; at = text.find(kMark, at))
        text.replace(at, kMark.size(), name);
    return text;
}

template <class Make>
Result<std::string> guarded(Make make) {
    const auto refused = [](const std::string& cause) {
        return fail(ErrorCode::kInvalidArgument, "JSON schema: " + cause);
    };
    try {
        return make();
    } catch (const Refusal& refusal) {
        return refused(refusal.message);
    } catch (const std::exception& e) {
        return refused(e.what());
    }
}

}  // namespace

Result<std::string> json_schema_grammar(std::string_view schema, const GrammarFrame& frame) {
    return guarded([&] {
        const Json document = Json::parse(schema);
        Converter converter;
        const std::string body = converter.convert_document(document);
        converter.add_rule("root", join(frame.before, body, frame.after));
        return converter.text();
    });
}

Result<std::string> tool_call_grammar(std::span<const ToolSchema> tools, const GrammarFrame& call,
                                      const GrammarFrame& outer, const std::string& separator) {
    return guarded([&] {
        if (tools.empty())
            refuse("there are no tools");
        std::vector<Json> documents;
        for (const ToolSchema& tool : tools)
            documents.push_back(tool.parameters.empty() ? Json({{"type", "object"}})
                                                        : Json::parse(tool.parameters));
        Converter converter;
        std::string any;
        for (size_t i = 0; i < tools.size(); ++i) {
            const std::string name = grammar_literal(tools[i].name);
            // Without its quotes: the mark lies within a literal.
            const std::string inner = name.substr(1, name.size() - 2);
            const std::string body = converter.convert_document(documents[i]);
            any += (i == 0 ? "" : " | ") +
                   join(with_name(call.before, inner), body, with_name(call.after, inner));
        }
        converter.add_rule("call", any);
        const std::string calls = separator.empty() ? "call" : "call ( " + separator + " call )*";
        converter.add_rule("root", join(outer.before, calls, outer.after));
        return converter.text();
    });
}

}  // namespace bevy
