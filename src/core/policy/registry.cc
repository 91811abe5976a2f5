#include "core/policy/registry.h"

#include <array>
#include <optional>

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
