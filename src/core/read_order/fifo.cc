// First come, first served: experts are read in the order in which routers chose them. The
// yardstick: what a plain queue in front of the disk does.
#include "core/read_order/registry.h"

namespace bevy {

namespace {

class FifoOrder final : public ReadOrder {
public:
    std::optional<ExpertId> next(const CoreState& state,
                                 std::span<const uint32_t> waiting) override {
        std::optional<ExpertId> found;
        uint64_t since = 0;
        for (uint32_t i : waiting) {
            const Sequence& s = state.sequences[i];
            if (found && s.reveal_number > since)
                continue;
            if (auto expert = first_absent(state, s)) {
                found = expert;
                since = s.reveal_number;
            }
        }
        return found;
    }
};

}  // namespace

std::unique_ptr<ReadOrder> make_fifo_order() {
    return std::make_unique<FifoOrder>();
}

}  // namespace bevy
