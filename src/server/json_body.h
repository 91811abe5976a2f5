// Text from a client to JSON, and the fields of an object to native values: the border behind which
// nothing has to be checked again.
//
// Hostile bodies are refused before a tree is built of them: nesting that would overflow the stack
// of whoever walks it, and objects with so many keys that looking them up takes forever.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/api_error.h"

namespace bevy {

// Keys stay in the client's order: chat templates print tools as they were sent.
using Json = nlohmann::ordered_json;

constexpr size_t kJsonDepthMax = 64;
constexpr size_t kJsonKeysMax = 2048;  // of one object

// Errors: 400 with the place of the mistake.
ApiResult<Json> parse_json(std::string_view text);
// The same, and it must be an object.
ApiResult<Json> parse_json_object(std::string_view text);

// Compact text of JSON whose strings may not be UTF-8 all through.
std::string json_text(const Json& json);

// "a string", "an object" ...
const char* json_kind(const Json& json);

// Reads fields of one object. A field that is absent or null leaves the target as it is. The first
// error is kept and all later calls do nothing, so that a caller asks once, at the end.
class JsonFields {
public:
    // `object` outlives this; it is an object.
    explicit JsonFields(const Json& object) : object_(object) {}

    void boolean(const char* name, bool& target);
    void text(const char* name, std::string& target);
    // A list of strings, or one string.
    void texts(const char* name, std::vector<std::string>& target);
    void number(const char* name, float& target, double low, double high);
    // A whole number; 3.0 counts as one.
    void integer(const char* name, int32_t& target, int64_t low, int64_t high);
    void integer(const char* name, uint32_t& target, int64_t low, int64_t high);
    std::optional<int64_t> integer(const char* name, int64_t low, int64_t high);

    // The field if it is there and not null.
    const Json* find(const char* name) const;
    // The same, and it must be of that kind.
    const Json* object(const char* name);
    const Json* array(const char* name);

    // "Field 'name': <problem>".
    void refuse(const char* name, const std::string& problem);
    bool failed() const { return error_.has_value(); }
    // REQUIRES: failed().
    ApiError error() const { return *error_; }

private:
    // The field, if it is there, no error has happened, and `fits` says yes to it.
    const Json* want(const char* name, const char* kind, bool (Json::*fits)() const noexcept);

    const Json& object_;
    std::optional<ApiError> error_;
};

}  // namespace bevy
