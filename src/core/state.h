// All that the core knows at one moment. Core changes it; policies read it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "core/action.h"
#include "core/config.h"
#include "core/cost_model.h"
#include "core/expert_cache.h"
#include "core/sequence.h"

namespace bevy {

// One read in flight; its index is its ticket.
struct Read {
    bool busy = false;
    bool cancelled = false;
    ExpertId expert;
    Instant started;
};

struct CoreState {
    explicit CoreState(const CoreConfig& c)
        : config(c),
          cache(c.moe_layers * c.experts_per_layer, c.slots),
          costs(c.dense_bytes, c.expert_bytes),
          sequences(c.sequences),
          reads(c.reads_inflight_max) {}

    CoreConfig config;
    ExpertCache cache;
    CostModel costs;
    std::vector<Sequence> sequences;  // indexed by SeqIndex
    std::vector<Read> reads;          // indexed by Ticket
    uint32_t reads_inflight = 0;
    Instant last_arrival;
    std::optional<StartStep> step;  // the step in flight
    Instant step_started;
    Duration idle;  // time without a step in flight, in all

    ExpertId expert_id(uint32_t layer, ExpertIndex expert) const {
        return ExpertId(layer * config.experts_per_layer + expert.value);
    }
    ExpertIndex expert_index(ExpertId id) const {
        return ExpertIndex(id.value % config.experts_per_layer);
    }
    // True while a read that some request needs is in flight. One that was cancelled before it was
    // demanded counts: it may yet have to be read again.
    bool link_wanted() const;
    // Whether the pass that `s` would start next needs a prefill lane, and whether one is free.
    // `taken`: lanes that other sequences of the same step take.
    bool wants_lane(const Sequence& s) const;
    uint32_t lanes_free() const;
    // The pass that a sequence in kEntry would start.
    PassRange next_pass(const Sequence& s) const;
};

}  // namespace bevy
