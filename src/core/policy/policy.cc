#include "core/policy/policy.h"

#include <algorithm>
#include <tuple>

namespace bevy {

void add_resident_uses(const CoreState& state, SeqIndex seq, StartStep& step) {
    for (const Demand& demand : state.sequences[seq.value].demands) {
        if (!demand.done && state.cache.residency(demand.expert) == Residency::kResident) {
            step.uses.push_back(
                {seq, state.expert_index(demand.expert), state.cache.slot(demand.expert)});
        }
    }
}

void add_advancing(const CoreState& state, SeqIndex seq, StartStep& step) {
    step.advancing.push_back(seq);
    if (step.stage == 0)
        step.passes.push_back(state.next_pass(state.sequences[seq.value]));
}

void sort_step(const CoreState&, StartStep& step) {
    std::ranges::sort(step.uses, [](const StepUse& a, const StepUse& b) {
        return std::tuple(a.expert, a.seq) < std::tuple(b.expert, b.seq);
    });
}

}  // namespace bevy
