#include "core/read_order/registry.h"

#include <array>

namespace bevy {

namespace {

constexpr std::array kRows = {
    ReadOrderRow{"lag", "for the most lagging request first", make_lag_order},
    ReadOrderRow{"fifo", "in the order in which routers chose them", make_fifo_order},
    ReadOrderRow{"fewest-missing", "for the request that lacks the fewest experts first",
                 make_fewest_missing_order},
    ReadOrderRow{"most-waiters", "the expert that most requests wait for first",
                 make_most_waiters_order},
};

}  // namespace

std::span<const ReadOrderRow> read_orders() {
    return kRows;
}

std::optional<ExpertId> first_absent(const CoreState& state, const Sequence& sequence) {
    for (const Demand& demand : sequence.demands) {
        if (!demand.done && state.cache.residency(demand.expert) == Residency::kAbsent)
            return demand.expert;
    }
    return std::nullopt;
}

}  // namespace bevy
