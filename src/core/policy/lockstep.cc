// Lockstep: all requests go through the layers together. At every layer the batch waits until each
// missing expert of each request has arrived, then computes. What most engines do, and the baseline
// that runahead is compared with.
//
// The variant with overlap computes the experts that are there while the others arrive: the best
// that can be done without letting a request leave the layer before the others.
//
// Where a layer needs more experts than there are slots, it works in waves: when nothing more can
// be read, the experts that are there are computed to make room, but nobody advances before all are
// done.
#include <algorithm>

#include "core/policy/registry.h"

namespace bevy {

namespace {

class Lockstep final : public SchedulePolicy {
public:
    explicit Lockstep(bool overlap) : overlap_(overlap) {}

    StepChoice choose(CoreState& state, FetchPlanner& planner, Instant) override {
        bool mid_pass = false;
        for (const Sequence& s : state.sequences) {
            if (s.phase == Phase::kSampling)
                return {};  // the batch is not complete before every token is taken
            mid_pass |= s.phase == Phase::kExperts;
        }
        return mid_pass ? choose_layer(state, planner) : choose_entry(state);
    }

private:
    // Starts a pass for everybody; prompts take turns when lanes are short.
    static StepChoice choose_entry(const CoreState& state) {
        StartStep step;
        uint32_t lanes = state.lanes_free();
        for (uint32_t i : by_lag(state)) {
            if (state.wants_lane(state.sequences[i])) {
                if (lanes == 0)
                    continue;
                lanes--;
            }
            step.advancing.push_back(SeqIndex(i));
        }
        if (step.advancing.empty())
            return {};
        std::ranges::sort(step.advancing);
        for (SeqIndex seq : step.advancing)
            step.passes.push_back(state.next_pass(state.sequences[seq.value]));
        return {std::move(step), {}};
    }

    static std::vector<uint32_t> by_lag(const CoreState& state) {
        std::vector<uint32_t> order;
        for (uint32_t i = 0; i < state.sequences.size(); i++) {
            if (state.sequences[i].phase == Phase::kEntry)
                order.push_back(i);
        }
        std::ranges::sort(order, [&](uint32_t a, uint32_t b) {
            return state.sequences[a].lags_behind(state.sequences[b]);
        });
        return order;
    }

    StepChoice choose_layer(const CoreState& state, FetchPlanner& planner) const {
        bool complete = true;
        StartStep step;
        for (uint32_t i = 0; i < state.sequences.size(); i++) {
            const Sequence& s = state.sequences[i];
            if (s.phase != Phase::kExperts)
                continue;
            step.stage = s.stage;  // the same for all
            complete &= s.missing == 0;
            add_resident_uses(state, SeqIndex(i), step);
        }
        if (complete) {
            for (uint32_t i = 0; i < state.sequences.size(); i++) {
                if (state.sequences[i].phase == Phase::kExperts)
                    add_advancing(state, SeqIndex(i), step);
            }
        } else {
            if (step.uses.empty())
                return {};
            bool can_read = planner.next(state).has_value() && state.cache.has_room();
            if (!overlap_ && (state.reads_inflight > 0 || can_read))
                return {};
        }
        sort_step(state, step);
        return {std::move(step), {}};
    }

    const bool overlap_;
};

}  // namespace

std::unique_ptr<SchedulePolicy> make_lockstep_policy() {
    return std::make_unique<Lockstep>(false);
}

std::unique_ptr<SchedulePolicy> make_lockstep_overlap_policy() {
    return std::make_unique<Lockstep>(true);
}

}  // namespace bevy
