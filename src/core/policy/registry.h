// The table of scheduling policies: names for --policy, help and errors.
//
// A name is that of a row, or ROW+prefetch-PREDICTOR (predictor/registry.h); prefetch-PREDICTOR
// alone means lockstep-overlap, what prefetching engines do. With @N behind it, the predictor is
// asked only while at most N requests run.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "core/policy/policy.h"
#include "core/predictor/registry.h"

namespace bevy {

struct PolicyRow {
    std::string_view name;
    std::string_view summary;  // for --help
    std::unique_ptr<SchedulePolicy> (*make)();
};

std::span<const PolicyRow> schedule_policies();

struct PolicyName {
    const PolicyRow* schedule = nullptr;
    const PredictorRow* predictor = nullptr;  // null: no prefetching
    uint32_t prefetch_requests_max = std::numeric_limits<uint32_t>::max();
};
// kUnsupported for an unknown name; the hint lists the known ones.
Result<PolicyName> parse_policy_name(std::string_view name);
// Every name that parse_policy_name() takes, the short prefetch-PREDICTOR and @N aside.
std::vector<std::string> policy_names();

std::unique_ptr<SchedulePolicy> make_bevy_policy();
std::unique_ptr<SchedulePolicy> make_bevy_request_policy();
std::unique_ptr<SchedulePolicy> make_bevy_unbatched_policy();
std::unique_ptr<SchedulePolicy> make_bevy_unordered_policy();
std::unique_ptr<SchedulePolicy> make_lockstep_policy();
std::unique_ptr<SchedulePolicy> make_lockstep_overlap_policy();

}  // namespace bevy
