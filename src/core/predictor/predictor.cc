#include "core/predictor/predictor.h"

#include <algorithm>

namespace bevy {

void append_largest(std::span<const uint64_t> scores, uint32_t count,
                    std::vector<ExpertIndex>& out) {
    size_t first = out.size();
    for (uint32_t e = 0; e < scores.size(); e++) {
        if (scores[e] == 0 || count == 0)
            continue;
        if (out.size() - first == count && scores[out.back().value] >= scores[e])
            continue;
        auto place =
            std::find_if(out.begin() + static_cast<std::ptrdiff_t>(first), out.end(),
                         [&](ExpertIndex other) { return scores[other.value] < scores[e]; });
        out.insert(place, ExpertIndex(e));
        if (out.size() - first > count)
            out.pop_back();
    }
}

}  // namespace bevy
