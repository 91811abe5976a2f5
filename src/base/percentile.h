// The value below which a part of all lies.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/units.h"

namespace bevy {

// `percent` of `values` are below or equal; zero for none. Changes their order.
inline Duration percentile(std::vector<Duration>& values, size_t percent) {
    if (values.empty())
        return {};
    const auto at = values.begin() + static_cast<ptrdiff_t>((values.size() - 1) * percent / 100);
    std::ranges::nth_element(values, at);
    return *at;
}

}  // namespace bevy
