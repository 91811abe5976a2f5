// Most lagging first: whoever is furthest behind holds up the forming of groups, and the experts
// that it misses are the ones that everybody's throughput waits for.
#include "core/read_order/registry.h"

namespace bevy {

namespace {

class LagOrder final : public ReadOrder {
public:
    std::optional<ExpertId> next(const CoreState& state,
                                 std::span<const uint32_t> waiting) override {
        for (uint32_t i : waiting) {
            if (auto expert = first_absent(state, state.sequences[i]))
                return expert;
        }
        return std::nullopt;
    }
};

}  // namespace

std::unique_ptr<ReadOrder> make_lag_order() {
    return std::make_unique<LagOrder>();
}

}  // namespace bevy
