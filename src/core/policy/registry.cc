#include "core/policy/registry.h"

#include <array>
#include <charconv>
#include <optional>
#include <system_error>

#include "base/registry.h"

namespace bevy {

namespace {

constexpr std::array kRows = {
    PolicyRow{"bevy", "runahead: requests go on as soon as their own experts are there",
              make_bevy_policy},
    PolicyRow{"bevy-request", "runahead of whole requests: each waits for all of its experts",
              make_bevy_request_policy},
    PolicyRow{"bevy-unbatched", "ablation: ready requests do not share steps",
              make_bevy_unbatched_policy},
    PolicyRow{"bevy-unordered", "ablation: who is ready longest runs first, however far ahead",
              make_bevy_unordered_policy},
    PolicyRow{"lockstep", "all requests layer by layer; a baseline", make_lockstep_policy},
    PolicyRow{"lockstep-overlap", "lockstep that computes what is there while the rest arrives",
              make_lockstep_overlap_policy},
};

}  // namespace

std::span<const PolicyRow> schedule_policies() {
    return kRows;
}

namespace {

// N of PREDICTOR@N, which is cut off.
Result<uint32_t> cut_requests_max(std::string_view& predictor) {
    const size_t at = predictor.find('@');
    if (at == std::string_view::npos)
        return std::numeric_limits<uint32_t>::max();
    const std::string_view digits = predictor.substr(at + 1);
    uint32_t value = 0;
    const auto [end, error] = std::from_chars(digits.begin(), digits.end(), value);
    if (error != std::errc() || end != digits.end() || value == 0) {
        return fail(ErrorCode::kUnsupported,
                    "'@" + std::string(digits) + "' is no number of requests",
                    "as in bevy+prefetch-next-gate@4: guess while at most 4 requests run");
    }
    predictor = predictor.substr(0, at);
    return value;
}

}  // namespace

Result<PolicyName> parse_policy_name(std::string_view name) {
    constexpr std::string_view kAlone = "prefetch-";
    constexpr std::string_view kAfterRow = "+prefetch-";
    std::string_view schedule = name;
    std::optional<std::string_view> predictor;
    if (name.starts_with(kAlone)) {
        schedule = "lockstep-overlap";
        predictor = name.substr(kAlone.size());
    } else if (size_t at = name.find(kAfterRow); at != std::string_view::npos) {
        schedule = name.substr(0, at);
        predictor = name.substr(at + kAfterRow.size());
    }
    PolicyName found;
    auto row = registry_find(schedule_policies(), "policy", schedule);
    if (!row) {
        return fail(ErrorCode::kUnsupported, row.error().message,
                    row.error().hint +
                        "; each also with +prefetch-PREDICTOR: " + registry_names(predictors()));
    }
    found.schedule = *row;
    if (predictor) {
        const Result<uint32_t> requests_max = cut_requests_max(*predictor);
        if (!requests_max)
            return std::unexpected(requests_max.error());
        found.prefetch_requests_max = *requests_max;
        auto guesser = registry_find(predictors(), "predictor", *predictor);
        if (!guesser)
            return std::unexpected(guesser.error());
        found.predictor = *guesser;
    }
    return found;
}

std::vector<std::string> policy_names() {
    std::vector<std::string> names;
    for (const PolicyRow& row : schedule_policies()) {
        names.emplace_back(row.name);
        for (const PredictorRow& predictor : predictors())
            names.push_back(std::string(row.name) + "+prefetch-" + std::string(predictor.name));
    }
    return names;
}

}  // namespace bevy
