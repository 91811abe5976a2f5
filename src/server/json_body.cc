#include "server/json_body.h"

#include <cmath>
#include <format>

namespace bevy {
namespace {

// Looks at the text once without building anything.
class Guard final : public nlohmann::json_sax<Json> {
public:
    std::string problem;

    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool number_integer(number_integer_t) override { return true; }
    bool number_unsigned(number_unsigned_t) override { return true; }
    bool number_float(number_float_t, const string_t&) override { return true; }
    bool string(string_t&) override { return true; }
    bool binary(binary_t&) override { return true; }
    bool start_object(size_t) override { return enter(); }
    bool start_array(size_t) override { return enter(); }
    bool end_object() override { return leave(); }
    bool end_array() override { return leave(); }

    bool key(string_t&) override {
        if (++keys_.back() <= kJsonKeysMax)
            return true;
        problem = std::format("an object has more than {} keys", kJsonKeysMax);
        return false;
    }

    bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& e) override {
        problem = e.what();
        // "[json.exception.parse_error.101] parse error at line 1 ...": the name says nothing.
        if (const size_t end = problem.find("] "); end != std::string::npos)
            problem.erase(0, end + 2);
        return false;
    }

private:
    bool enter() {
        keys_.push_back(0);
        if (keys_.size() <= kJsonDepthMax)
            return true;
        problem = std::format("nested deeper than {}", kJsonDepthMax);
        return false;
    }
    bool leave() {
        keys_.pop_back();
        return true;
    }

    std::vector<size_t> keys_;  // of the objects that are open
};

}  // namespace

ApiResult<Json> parse_json(std::string_view text) {
    Guard guard;
    if (!Json::sax_parse(text, &guard))
        return std::unexpected(invalid_request("The body is not valid JSON: " + guard.problem));
    return Json::parse(text);
}

ApiResult<Json> parse_json_object(std::string_view text) {
    ApiResult<Json> json = parse_json(text);
    if (json && !json->is_object())
        return std::unexpected(invalid_request(
            std::format("The body must be a JSON object, but is {}", json_kind(*json))));
    return json;
}

std::string json_text(const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

const char* json_kind(const Json& json) {
    switch (json.type()) {
        case Json::value_t::null:
            return "null";
        case Json::value_t::object:
            return "an object";
        case Json::value_t::array:
            return "an array";
        case Json::value_t::string:
            return "a string";
        case Json::value_t::boolean:
            return "a boolean";
        default:
            return "a number";
    }
}

const Json* JsonFields::find(const char* name) const {
    const auto found = object_.find(name);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void JsonFields::refuse(const char* name, const std::string& problem) {
    if (!error_)
        error_ = invalid_request(std::format("Field '{}': {}", name, problem));
}

const Json* JsonFields::want(const char* name, const char* kind,
                             bool (Json::*fits)() const noexcept) {
    const Json* field = error_ ? nullptr : find(name);
    if (field == nullptr || (field->*fits)())
        return field;
    refuse(name, std::format("must be {}, but is {}", kind, json_kind(*field)));
    return nullptr;
}

const Json* JsonFields::object(const char* name) {
    return want(name, "an object", &Json::is_object);
}

const Json* JsonFields::array(const char* name) {
    return want(name, "an array", &Json::is_array);
}

void JsonFields::boolean(const char* name, bool& target) {
    if (const Json* field = want(name, "a boolean", &Json::is_boolean))
        target = field->get<bool>();
}

void JsonFields::text(const char* name, std::string& target) {
    if (const Json* field = want(name, "a string", &Json::is_string))
        target = field->get<std::string>();
}

void JsonFields::texts(const char* name, std::vector<std::string>& target) {
    const Json* field = error_ ? nullptr : find(name);
    if (field == nullptr)
        return;
    if (field->is_string()) {
        target = {field->get<std::string>()};
        return;
    }
    if (!field->is_array()) {
        refuse(name, std::format("must be a string or an array of strings, but is {}",
                                 json_kind(*field)));
        return;
    }
    std::vector<std::string> read;
    for (const Json& element : *field) {
        if (!element.is_string()) {
            refuse(name, std::format("must hold strings only, but has {}", json_kind(element)));
            return;
        }
        read.push_back(element.get<std::string>());
    }
    target = std::move(read);
}

void JsonFields::number(const char* name, float& target, double low, double high) {
    const Json* field = want(name, "a number", &Json::is_number);
    if (field == nullptr)
        return;
    const double value = field->get<double>();
    if (!(value >= low && value <= high)) {
        refuse(name, std::format("must be between {:g} and {:g}, but is {:g}", low, high, value));
        return;
    }
    target = static_cast<float>(value);
}

std::optional<int64_t> JsonFields::integer(const char* name, int64_t low, int64_t high) {
    const Json* field = want(name, "a number", &Json::is_number);
    if (field == nullptr)
        return std::nullopt;
    // Far below the limits of int64_t, so that comparing as double is exact enough.
    const double value = field->get<double>();
    if (value != std::floor(value)) {
        refuse(name, std::format("must be a whole number, but is {:g}", value));
        return std::nullopt;
    }
    if (!(value >= static_cast<double>(low) && value <= static_cast<double>(high))) {
        refuse(name, std::format("must be between {} and {}, but is {}", low, high, field->dump()));
        return std::nullopt;
    }
    return field->is_number_float() ? static_cast<int64_t>(value) : field->get<int64_t>();
}

void JsonFields::integer(const char* name, int32_t& target, int64_t low, int64_t high) {
    if (const std::optional<int64_t> value = integer(name, low, high))
        target = static_cast<int32_t>(*value);
}

void JsonFields::integer(const char* name, uint32_t& target, int64_t low, int64_t high) {
    if (const std::optional<int64_t> value = integer(name, low, high))
        target = static_cast<uint32_t>(*value);
}

}  // namespace bevy
