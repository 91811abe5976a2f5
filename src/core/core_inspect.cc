// Looks at the core that change nothing: progress for displays, invariants for tests.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/assert.h"
#include "core/core.h"
#include "core/kept_prefixes.h"
#include "core/prefetcher.h"
#include "core/state.h"

namespace bevy {

std::optional<Core::Progress> Core::progress(RequestId request) const {
    if (std::ranges::find(queue_, request, &RequestArrived::request) != queue_.end())
        return Progress{.queued = true};
    for (const Sequence& s : state_->sequences) {
        if (s.phase != Phase::kFree && !s.abandoned && s.request == request)
            return Progress{false, s.position, s.stage, s.missing};
    }
    return std::nullopt;
}

std::vector<uint32_t> Core::resident_by_layer() const {
    const CoreConfig& config = state_->config;
    std::vector<uint32_t> counts(config.moe_layers);
    for (uint32_t i = 0; i < config.moe_layers * config.experts_per_layer; i++)
        counts[i / config.experts_per_layer] +=
            state_->cache.residency(ExpertId(i)) == Residency::kResident;
    return counts;
}

void Core::check_invariants() const {
    const CoreState& state = *state_;
    state.cache.check_invariants();
    std::vector<uint32_t> demands(size_t{state.config.moe_layers} * state.config.experts_per_layer);
    uint32_t lanes = 0;
    for (const Sequence& s : state.sequences) {
        uint32_t outstanding = 0;
        uint32_t missing = 0;
        for (const Demand& demand : s.demands) {
            BEVY_ASSERT(s.phase != Phase::kFree);
            BEVY_ASSERT(!demand.running || (state.step && !demand.done));
            Residency residency = state.cache.residency(demand.expert);
            BEVY_ASSERT(!demand.running || residency == Residency::kResident);
            if (demand.done)
                continue;
            outstanding++;
            demands[demand.expert.value]++;
            missing += residency != Residency::kResident;
        }
        BEVY_ASSERT(outstanding == s.outstanding);
        BEVY_ASSERT(s.phase == Phase::kFree || s.abandoned ||
                    kept_->kept(index_of(s)).size() <= s.position);
        BEVY_ASSERT(missing == s.missing);
        BEVY_ASSERT(!s.abandoned || state.step.has_value());
        BEVY_ASSERT(s.phase != Phase::kStep || state.step.has_value());
        bool mid_pass = s.phase == Phase::kExperts || s.phase == Phase::kStep;
        lanes += mid_pass && s.pass.tokens > 1;
    }
    BEVY_ASSERT(lanes <= state.config.prefill_sequences);
    for (uint32_t i = 0; i < demands.size(); i++)
        BEVY_ASSERT(demands[i] == state.cache.demands(ExpertId(i)));
    uint32_t busy = 0;
    for (const Read& read : state.reads) {
        busy += read.busy;
        BEVY_ASSERT(!read.busy || state.cache.residency(read.expert) == Residency::kLoading);
    }
    BEVY_ASSERT(busy == state.reads_inflight);
    BEVY_ASSERT(busy == state.cache.slots_loading());
    if (prefetcher_) {
        prefetcher_->check_invariants(state);
        return;
    }
    for (uint32_t i = 0; i < demands.size(); i++)
        BEVY_ASSERT(state.cache.protections(ExpertId(i)) == 0);
}

}  // namespace bevy
