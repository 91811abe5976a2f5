#include "core/policy/registry.h"

#include <array>

namespace bevy {

namespace {

constexpr std::array kRows = {
    PolicyRow{"bevy", "runahead: requests go on as soon as their own experts are there",
              make_bevy_policy},
    PolicyRow{"lockstep", "all requests layer by layer; a baseline", make_lockstep_policy},
};

}  // namespace

std::span<const PolicyRow> schedule_policies() {
    return kRows;
}

}  // namespace bevy
