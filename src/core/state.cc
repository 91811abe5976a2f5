#include "core/state.h"

#include <algorithm>

namespace bevy {

PassRange CoreState::next_pass(const Sequence& s) const {
    uint32_t to_boundary = config.chunk_tokens - s.position % config.chunk_tokens;
    uint32_t tokens = std::min(to_boundary, s.target - s.position);
    return {s.position, tokens, s.position + tokens == s.target};
}

bool CoreState::link_wanted() const {
    return std::ranges::any_of(
        reads, [&](const Read& read) { return read.busy && cache.demands(read.expert) > 0; });
}

bool CoreState::wants_lane(const Sequence& s) const {
    return next_pass(s).tokens > 1;
}

uint32_t CoreState::lanes_free() const {
    uint32_t taken = 0;
    for (const Sequence& s : sequences) {
        bool mid_pass = s.phase == Phase::kExperts || s.phase == Phase::kStep;
        taken += mid_pass && s.pass.tokens > 1;
    }
    return config.prefill_sequences - taken;
}

}  // namespace bevy
