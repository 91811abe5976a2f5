// Runahead at the grain of whole requests: the published text taken literally. A request computes a
// layer when all of its experts are resident; ready requests at the same layer share a step; the
// most lagging one is served first. Experts of waiting requests are not computed early, and nobody
// is held for a joiner.
//
// With few slots the experts of several waiting requests can fill the cache while none is complete.
// Then what is there is computed to make room, as everywhere in this engine, instead of reserving
// all slots of a request at once as other implementations do.
#include <algorithm>

#include "core/policy/registry.h"

namespace bevy {

namespace {

class WholeRequests final : public SchedulePolicy {
public:
    StepChoice choose(CoreState& state, FetchPlanner& planner, Instant) override {
        const Sequence* first = nullptr;
        for (const Sequence& s : state.sequences) {
            if (s.ready() && may_enter(state, s) && (!first || s.lags_behind(*first)))
                first = &s;
        }
        if (first) {
            // Tokens of the last head step are being sampled: their requests join in a moment.
            bool sampling = std::ranges::any_of(
                state.sequences, [](const Sequence& s) { return s.phase == Phase::kSampling; });
            if (first->stage == 0 && sampling)
                return {};
            return {group(state, first->stage), {}};
        }
        bool stuck =
            state.reads_inflight == 0 && !state.cache.has_room() && planner.next(state).has_value();
        return stuck ? StepChoice{make_room(state), {}} : StepChoice{};
    }

private:
    static bool may_enter(const CoreState& state, const Sequence& s) {
        return s.phase != Phase::kEntry || !state.wants_lane(s) || state.lanes_free() > 0;
    }
    static StartStep group(const CoreState& state, uint32_t stage) {
        StartStep step{.stage = stage};
        uint32_t lanes = state.lanes_free();
        for (uint32_t i = 0; i < state.sequences.size(); i++) {
            const Sequence& s = state.sequences[i];
            if (!s.ready() || s.stage != stage)
                continue;
            if (stage == 0 && state.wants_lane(s)) {
                if (lanes == 0)
                    continue;
                lanes--;
            }
            add_advancing(state, SeqIndex(i), step);
            if (s.phase == Phase::kExperts)
                add_resident_uses(state, SeqIndex(i), step);
        }
        sort_step(state, step);
        return step;
    }
    // The resident experts of the most lagging request that has some.
    static std::optional<StartStep> make_room(const CoreState& state) {
        StartStep best;
        const Sequence* found = nullptr;
        for (uint32_t i = 0; i < state.sequences.size(); i++) {
            const Sequence& s = state.sequences[i];
            if (!s.waiting() || (found && !s.lags_behind(*found)))
                continue;
            StartStep step{.stage = s.stage};
            add_resident_uses(state, SeqIndex(i), step);
            if (step.uses.empty())
                continue;
            best = std::move(step);
            found = &s;
        }
        if (!found)
            return std::nullopt;
        sort_step(state, best);
        return best;
    }
};

}  // namespace

std::unique_ptr<SchedulePolicy> make_bevy_request_policy() {
    return std::make_unique<WholeRequests>();
}

}  // namespace bevy
