// The expert that most requests wait for first; among equals the one of the most lagging request.
#include "core/read_order/registry.h"

namespace bevy {

namespace {

class MostWaiters final : public ReadOrder {
public:
    std::optional<ExpertId> next(const CoreState& state,
                                 std::span<const uint32_t> waiting) override {
        std::optional<ExpertId> found;
        uint32_t most = 0;
        for (uint32_t i : waiting) {
            for (const Demand& demand : state.sequences[i].demands) {
                if (demand.done || state.cache.residency(demand.expert) != Residency::kAbsent)
                    continue;
                uint32_t waiters = state.cache.demands(demand.expert);
                if (waiters > most) {
                    most = waiters;
                    found = demand.expert;
                }
            }
        }
        return found;
    }
};

}  // namespace

std::unique_ptr<ReadOrder> make_most_waiters_order() {
    return std::make_unique<MostWaiters>();
}

}  // namespace bevy
