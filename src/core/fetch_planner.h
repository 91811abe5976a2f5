// What the link does next: the first missing expert, in the read order, that is not on its way yet.
//
// Exact demand only. An expert that several requests need is read once, at the priority of the
// first of them. Pull-shaped: the core
// asks whenever a read could start, nothing is queued here, so priorities are always current and
// there is nothing to cancel.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "core/read_order/read_order.h"
#include "core/state.h"

namespace bevy {

class FetchPlanner {
public:
    FetchPlanner(uint32_t sequences, std::unique_ptr<ReadOrder> order) : order_(std::move(order)) {
        waiting_.reserve(sequences);
    }

    // The expert to read next; nothing if every demand is resident or on its way.
    std::optional<ExpertId> next(const CoreState& state);

    // How long until the last missing expert of `seq` arrives, if reads go on at the measured rate
    // in the order of lag. REQUIRES: it is waiting.
    Duration predicted_wait(const CoreState& state, SeqIndex seq, Instant now);

private:
    // Indices of the waiting sequences, the most lagging first.
    void sort_waiting(const CoreState& state);

    std::unique_ptr<ReadOrder> order_;
    std::vector<uint32_t> waiting_;
};

}  // namespace bevy
