// Shortest job first: the request that lacks the fewest experts is completed first. Frees somebody
// soonest, but neglects those who lag.
#include "core/read_order/registry.h"

namespace bevy {

namespace {

class FewestMissing final : public ReadOrder {
public:
    std::optional<ExpertId> next(const CoreState& state,
                                 std::span<const uint32_t> waiting) override {
        std::optional<ExpertId> found;
        uint32_t fewest = 0;
        for (uint32_t i : waiting) {
            const Sequence& s = state.sequences[i];
            if (found && s.missing >= fewest)
                continue;
            if (auto expert = first_absent(state, s)) {
                found = expert;
                fewest = s.missing;
            }
        }
        return found;
    }
};

}  // namespace

std::unique_ptr<ReadOrder> make_fewest_missing_order() {
    return std::make_unique<FewestMissing>();
}

}  // namespace bevy
