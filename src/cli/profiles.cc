#include "cli/profiles.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <format>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <sstream>

#include "cli/embedded_profiles.h"

namespace bevy {

namespace {

using nlohmann::json;

// Bounds that keep all sums of costs and bytes far from overflowing.
constexpr double kBytesMax = 1e12;
constexpr double kMicrosecondsMax = 1e9;
constexpr double kScaleMax = 1e5;
constexpr double kRoutingMax = 1e3;  // of the noise, next to which nothing is left of it

// Takes the fields of one profile, each once, and remembers the first thing that is wrong.
class Fields {
public:
    Fields(std::string_view text, const std::string& name) : name_(name) {
        object_ = json::parse(text, nullptr, false);
        if (object_.is_discarded())
            wrong("is not JSON");
        else if (!object_.is_object())
            wrong("is not a JSON object");
    }

    double number(const char* field, double low, double high) {
        const std::optional<json> value = take(field);
        if (!value)
            return low;
        if (!value->is_number()) {
            wrong(std::format("field '{}' is not a number", field));
            return low;
        }
        const double taken = value->get<double>();
        if (!(taken >= low && taken <= high)) {
            wrong(std::format("field '{}' is {}; it must be {} .. {}", field, taken, low, high));
            return low;
        }
        return taken;
    }
    bool has(const char* field) const { return !error_ && object_.contains(field); }
    uint64_t whole(const char* field, uint64_t low, double high) {
        return static_cast<uint64_t>(std::llround(number(field, static_cast<double>(low), high)));
    }
    uint32_t small(const char* field, uint32_t low, uint32_t high) {
        return static_cast<uint32_t>(whole(field, low, high));
    }
    Duration microseconds(const char* field) {
        return {std::llround(number(field, 0, kMicrosecondsMax) * 1e3)};
    }
    uint32_t per_mille(const char* field, double high) {
        return static_cast<uint32_t>(std::llround(number(field, 0, high) * 1e3));
    }
    std::string text(const char* field) {
        const std::optional<json> value = take(field);
        if (value && !value->is_string())
            wrong(std::format("field '{}' is not a text", field));
        return value && value->is_string() ? value->get<std::string>() : std::string();
    }
    void require(bool holds, const char* what) {
        if (!holds)
            wrong(what);
    }

    // After the last field: whatever is left has no meaning.
    template <class Profile>
    Result<Profile> finish(Profile profile) {
        if (!error_ && !object_.empty())
            wrong(std::format("unknown field '{}'", object_.begin().key()));
        if (error_)
            return std::unexpected(*error_);
        return profile;
    }

private:
    std::optional<json> take(const char* field) {
        if (error_)
            return std::nullopt;
        const auto found = object_.find(field);
        if (found == object_.end()) {
            wrong(std::format("no field '{}'", field));
            return std::nullopt;
        }
        std::optional<json> value(std::in_place, std::move(*found));
        object_.erase(found);
        return value;
    }
    void wrong(const std::string& what) {
        if (!error_)
            error_ = Error{ErrorCode::kCorruptFile, std::format("profile {}: {}", name_, what),
                           "the files in profiles/ of the source show what belongs into one"};
    }

    const std::string name_;
    json object_;
    std::optional<Error> error_;
};

Result<std::string> read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    std::ostringstream text;
    if (!file)
        return fail(ErrorCode::kNotFound,
                    std::format("cannot open the profile {}: {}", path, std::strerror(errno)));
    std::error_code ignored;
    if (!std::filesystem::is_regular_file(path, ignored))
        return fail(ErrorCode::kUnsupported, path + " is not a regular file");
    text << file.rdbuf();
    if (file.bad())
        return fail(ErrorCode::kIo, "cannot read the profile " + path);
    return std::move(text).str();
}

// The one that is called `name` or is the only one whose name begins with it.
Result<const EmbeddedProfile*> find_embedded(std::span<const EmbeddedProfile> rows,
                                             std::string_view kind, const std::string& name) {
    const EmbeddedProfile* found = nullptr;
    int matches = 0;
    std::string names;
    for (const EmbeddedProfile& row : rows) {
        if (row.name == name)
            return &row;
        if (!name.empty() && row.name.starts_with(name)) {
            found = &row;
            matches++;
        }
        names += (names.empty() ? "" : ", ") + std::string(row.name);
    }
    if (matches == 1)
        return found;
    return fail(ErrorCode::kUnsupported,
                std::format("{} {} '{}'", matches > 1 ? "more than one" : "unknown", kind, name),
                "known: " + names + "; or give the path of a JSON file");
}

template <class Profile>
Result<Profile> open_profile(const std::string& name, std::string_view kind,
                             std::span<const EmbeddedProfile> rows,
                             Result<Profile> (*parse)(std::string_view, const std::string&)) {
    if (name.contains('/') || name.ends_with(".json")) {
        const Result<std::string> text = read_file(name);
        if (!text)
            return std::unexpected(text.error());
        Result<Profile> profile = parse(*text, name);
        if (profile)
            profile->name = std::filesystem::path(name).stem().string();
        return profile;
    }
    const Result<const EmbeddedProfile*> row = find_embedded(rows, kind, name);
    if (!row)
        return std::unexpected(row.error());
    return parse((*row)->text, std::string((*row)->name));
}

std::vector<std::string> names_of(std::span<const EmbeddedProfile> rows) {
    std::vector<std::string> names;
    for (const EmbeddedProfile& row : rows)
        names.emplace_back(row.name);
    return names;
}

}  // namespace

Result<HardwareProfile> parse_hardware_profile(std::string_view text, const std::string& name) {
    Fields fields(text, name);
    HardwareProfile profile;
    profile.name = name;
    profile.comment = fields.text("comment");
    profile.link_bytes_per_second = fields.whole("link_bytes_per_second", 1000, 1e15);
    profile.link_latency = fields.microseconds("link_latency_us");
    profile.transfers_inflight = fields.small("transfers_inflight", 1, 1024);
    profile.memory_bytes_per_second = fields.whole("memory_bytes_per_second", 1000, 1e15);
    profile.memory_contention_per_mille = fields.per_mille("memory_contention", 0.95);
    if (fields.has("processor_contention"))
        profile.processor_contention_per_mille = fields.per_mille("processor_contention", 0.95);
    profile.launch = fields.microseconds("launch_us");
    profile.pair = fields.microseconds("pair_us");
    profile.layer = fields.microseconds("layer_us");
    profile.head = fields.microseconds("head_us");
    return fields.finish(std::move(profile));
}

Result<ModelProfile> parse_model_profile(std::string_view text, const std::string& name) {
    Fields fields(text, name);
    ModelProfile profile;
    profile.name = name;
    profile.comment = fields.text("comment");
    profile.layers = fields.small("layers", 1, 4096);
    profile.experts = fields.small("experts", 1, 256);
    profile.top_k = fields.small("top_k", 1, 256);
    fields.require(profile.top_k <= profile.experts, "field 'top_k' is larger than 'experts'");
    profile.expert_bytes = fields.whole("expert_bytes", 1, kBytesMax);
    profile.layer_bytes = fields.whole("layer_bytes", 0, kBytesMax);
    profile.entry_bytes = fields.whole("entry_bytes", 0, kBytesMax);
    profile.head_bytes = fields.whole("head_bytes", 0, kBytesMax);
    profile.pair_per_mille = fields.per_mille("pair_scale", kScaleMax);
    profile.layer_per_mille = fields.per_mille("layer_scale", kScaleMax);
    profile.head_per_mille = fields.per_mille("head_scale", kScaleMax);
    profile.routing = {.popularity_per_mille = fields.per_mille("routing_popularity", kRoutingMax),
                       .request_per_mille = fields.per_mille("routing_request", kRoutingMax),
                       .drift_per_mille = fields.per_mille("routing_drift", kRoutingMax),
                       .memory_per_mille = fields.per_mille("routing_memory", 1)};
    return fields.finish(std::move(profile));
}

Result<HardwareProfile> open_hardware_profile(const std::string& name) {
    return open_profile(name, "hardware profile", embedded_hardware_profiles(),
                        parse_hardware_profile);
}

Result<ModelProfile> open_model_profile(const std::string& name) {
    return open_profile(name, "model profile", embedded_model_profiles(), parse_model_profile);
}

std::vector<std::string> hardware_profile_names() {
    return names_of(embedded_hardware_profiles());
}

std::vector<std::string> model_profile_names() {
    return names_of(embedded_model_profiles());
}

}  // namespace bevy
