// Runahead at the grain of single experts: the policy that this engine exists for.
//
// A request goes on to the next layer as soon as all of its own experts are computed; the others do
// not hold it up. As it goes it reveals, exactly, which experts it needs next, and those are read
// while others compute. Four rules make that fast:
//
// 1. Most lagging first. Of the layers where a request is ready (everything missing has arrived),
//    the one with the most lagging request runs next. Groups form by themselves, since the lagging
//    ones catch up.
//
// 2. An expert is computed once for all. The step of a layer computes every resident expert that
//    any request at that layer needs, waiting requests included; their outputs are kept until the
//    rest is there.
//
// 3. Bounded hold. The dense part of the next layer, and above all the output head, reads weights
//    that all requests share. The ready ones wait for others of the layer, or for those who lag
//    behind it in the same token, while they may be expected to catch up: their experts are
//    computed, but not the dense part. Other layers run meanwhile, which costs nothing; the
//    processor idles for a hold at most as long as sharing that part saves. Whoever is held reveals
//    no demand, so all this is done only as far as the link has time to spare.
//
// 4. No idling. When nobody is ready, or when the link has no slot to read into, the resident
//    experts of waiting requests are computed, all of one layer in one launch. That also frees
//    their slots.
//
// Why it can't get stuck: an expert with a demand is pinned only until it is computed, and rule 4
// computes every resident one. So whenever all slots are pinned there is a step to run, whatever
// the number of slots.
#include <algorithm>

#include "core/policy/registry.h"

namespace bevy {

namespace {

// Rules that an ablation leaves out.
struct RunaheadRules {
    bool batch = true;      // requests of the same layer share a step
    bool lag_first = true;  // else who is ready longest runs first
};

class Runahead final : public SchedulePolicy {
public:
    explicit Runahead(RunaheadRules rules = {}) : rules_(rules) {}

    StepChoice choose(CoreState& state, FetchPlanner& planner, Instant now) override {
        ask_again_.reset();
        bool starved = state.reads_inflight < state.reads.size() && !state.cache.has_room() &&
                       planner.next(state).has_value();
        sort_ready(state);
        if (starved) {
            if (auto stage = most_lagging_stage(state, has_resident_use)) {
                if (auto step = step_of(state, planner, *stage, now))
                    return {std::move(step), {}};
                return {build(state, *stage, {}), {}};
            }
        }
        for (uint32_t i : ready_) {
            uint32_t stage = state.sequences[i].stage;
            if (auto step = step_of(state, planner, stage, now))
                return {std::move(step), {}};
        }
        if (auto stage = most_lagging_stage(state, has_resident_use))
            return {build(state, *stage, {}), {}};
        return {std::nullopt, ask_again_};
    }

private:
    static bool has_resident_use(const CoreState& state, const Sequence& s) {
        if (s.phase != Phase::kExperts)
            return false;
        return std::ranges::any_of(s.demands, [&](const Demand& d) {
            return !d.done && state.cache.residency(d.expert) == Residency::kResident;
        });
    }

    // The stage of the most lagging sequence for which `wanted` holds.
    template <class Predicate>
    static std::optional<uint32_t> most_lagging_stage(const CoreState& state, Predicate wanted) {
        const Sequence* found = nullptr;
        for (const Sequence& s : state.sequences) {
            if (wanted(state, s) && (!found || s.lags_behind(*found)))
                found = &s;
        }
        return found ? std::optional(found->stage) : std::nullopt;
    }

    void sort_ready(const CoreState& state) {
        ready_.clear();
        for (uint32_t i = 0; i < state.sequences.size(); i++) {
            if (state.sequences[i].ready())
                ready_.push_back(i);
        }
        std::ranges::sort(ready_, [&](uint32_t a, uint32_t b) {
            const Sequence& first = state.sequences[a];
            const Sequence& second = state.sequences[b];
            if (!rules_.lag_first && first.reveal_number != second.reveal_number)
                return first.reveal_number < second.reveal_number;
            return first.lags_behind(second);
        });
    }

    // The step that `stage` would run now: nothing if all it could do is held.
    std::optional<StartStep> step_of(CoreState& state, FetchPlanner& planner, uint32_t stage,
                                     Instant now) {
        std::vector<SeqIndex> advancing;
        uint32_t lanes = state.lanes_free();
        for (uint32_t i : ready_) {
            const Sequence& s = state.sequences[i];
            if (s.stage != stage)
                continue;
            if (stage == 0 && state.wants_lane(s)) {
                if (lanes == 0)
                    continue;  // waits for a prompt that is being processed
                lanes--;
            }
            advancing.push_back(SeqIndex(i));
            if (!rules_.batch)
                break;
        }
        if (advancing.empty())
            return std::nullopt;
        StartStep step = build(state, stage, advancing);
        if (rules_.batch && hold(state, planner, step, now))
            step = build(state, stage, {});
        if (step.uses.empty() && step.advancing.empty())
            return std::nullopt;
        return step;
    }

    // True: the dense part of `step` should wait for a joiner, and only its experts be computed
    // now. Remembers until when at most.
    bool hold(CoreState& state, FetchPlanner& planner, const StartStep& step, Instant now) {
        if (step.stage == 0) {
            // Tokens of the last head step are being sampled right now: their requests join in a
            // moment.
            return std::ranges::any_of(
                state.sequences, [](const Sequence& s) { return s.phase == Phase::kSampling; });
        }
        Duration held_at_idle = state.idle;
        uint64_t progress = 0;
        for (SeqIndex seq : step.advancing) {
            const Sequence& s = state.sequences[seq.value];
            held_at_idle = std::min(held_at_idle, s.held_at_idle.value_or(held_at_idle));
            progress = std::max(progress, s.progress);
        }
        Duration budget = state.costs.dense(step.stage) - (state.idle - held_at_idle);
        if (budget.ns <= 0)
            return false;
        // The experts have to be computed in any case; the processor idles when they are.
        Duration busy = state.costs.spare_twice(state.costs.experts(distinct_experts(step)));
        for (uint32_t i = 0; i < state.sequences.size(); i++) {
            const Sequence& s = state.sequences[i];
            if (!s.waiting() || s.abandoned || !joins(state, s, step.stage, progress))
                continue;
            Duration patience = s.stage == step.stage ? budget : state.costs.spare(budget);
            if (planner.predicted_wait(state, SeqIndex(i), now) > patience + busy)
                continue;
            for (SeqIndex seq : step.advancing)
                state.sequences[seq.value].held_at_idle = held_at_idle;
            Instant deadline = now + budget + busy;
            if (!ask_again_ || deadline < *ask_again_)
                ask_again_ = deadline;
            return true;
        }
        return false;
    }

    // `s` is at the stage, or on its way there in the same token.
    static bool joins(const CoreState& state, const Sequence& s, uint32_t stage,
                      uint64_t progress) {
        if (s.stage >= stage)
            return s.stage == stage;
        return s.progress <= progress && progress - s.progress <= state.config.moe_layers;
    }

    static uint32_t distinct_experts(const StartStep& step) {
        uint32_t distinct = 0;
        for (size_t i = 0; i < step.uses.size(); i++)
            distinct += i == 0 || step.uses[i].expert != step.uses[i - 1].expert;
        return distinct;
    }

    // All resident experts that anybody at the layer needs, and the given sequences advancing.
    StartStep build(const CoreState& state, uint32_t stage, std::vector<SeqIndex> advancing) const {
        StartStep step;
        step.stage = stage;
        std::ranges::sort(advancing);
        for (SeqIndex seq : advancing)
            add_advancing(state, seq, step);
        for (uint32_t i = 0; i < state.sequences.size(); i++) {
            const Sequence& s = state.sequences[i];
            bool alone = !rules_.batch && !advancing.empty() && advancing[0] != SeqIndex(i);
            if (s.phase == Phase::kExperts && s.stage == stage && !alone)
                add_resident_uses(state, SeqIndex(i), step);
        }
        sort_step(state, step);
        return step;
    }

    const RunaheadRules rules_;
    std::vector<uint32_t> ready_;  // indices of ready sequences, the most lagging first
    std::optional<Instant> ask_again_;
};

}  // namespace

std::unique_ptr<SchedulePolicy> make_bevy_policy() {
    return std::make_unique<Runahead>();
}

std::unique_ptr<SchedulePolicy> make_bevy_unbatched_policy() {
    return std::make_unique<Runahead>(RunaheadRules{.batch = false});
}

std::unique_ptr<SchedulePolicy> make_bevy_unordered_policy() {
    return std::make_unique<Runahead>(RunaheadRules{.lag_first = false});
}

}  // namespace bevy
