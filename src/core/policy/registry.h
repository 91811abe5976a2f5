// The table of scheduling policies: names for --policy, help and errors.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "core/policy/policy.h"

namespace bevy {

struct PolicyRow {
    std::string_view name;
    std::string_view summary;  // for --help
    std::unique_ptr<SchedulePolicy> (*make)();
};

std::span<const PolicyRow> schedule_policies();

std::unique_ptr<SchedulePolicy> make_bevy_policy();
std::unique_ptr<SchedulePolicy> make_lockstep_policy();

}  // namespace bevy
