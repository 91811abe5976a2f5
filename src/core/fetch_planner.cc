#include "core/fetch_planner.h"

#include <algorithm>

#include "base/assert.h"

namespace bevy {

void FetchPlanner::sort_waiting(const CoreState& state) {
    waiting_.clear();
    for (uint32_t i = 0; i < state.sequences.size(); i++) {
        if (state.sequences[i].waiting() && !state.sequences[i].abandoned)
            waiting_.push_back(i);
    }
    std::ranges::sort(waiting_, [&](uint32_t a, uint32_t b) {
        return state.sequences[a].lags_behind(state.sequences[b]);
    });
}

std::optional<ExpertId> FetchPlanner::next(const CoreState& state) {
    sort_waiting(state);
    return order_->next(state, waiting_);
}

Duration FetchPlanner::predicted_wait(const CoreState& state, SeqIndex seq, Instant now) {
    BEVY_ASSERT(state.sequences[seq.value].waiting());
    // Everything in flight comes first, then the absent experts of those who lag at least as much.
    // Experts shared between them are counted twice: the estimate errs towards not waiting.
    uint64_t arrivals = state.reads_inflight;
    sort_waiting(state);
    for (uint32_t i : waiting_) {
        for (const Demand& demand : state.sequences[i].demands)
            arrivals += !demand.done && state.cache.residency(demand.expert) == Residency::kAbsent;
        if (i == seq.value)
            break;
    }
    Duration since_last = state.reads_inflight > 0 ? now - state.last_arrival : Duration{};
    Duration interval = state.costs.read_interval();
    Duration wait = interval * static_cast<int64_t>(arrivals) - std::min(since_last, interval);
    return std::max(wait, Duration{});
}

}  // namespace bevy
