// Which expert gives up its slot: a policy is a table of scores, one per expert of the model.
//
// The cache evicts the unpinned resident expert with the smallest score; ties go to the lower slot.
// A policy sees ids and visits, never bytes, slots or time, and computes in integers only, so the
// same routes give the same evictions on every machine. One file per policy, one row in
// registry.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/error.h"
#include "base/ids.h"
#include "core/event.h"

namespace bevy {

class EvictionPolicy {
public:
    virtual ~EvictionPolicy() = default;

    // A router has chosen `used` (distinct experts) at `layer`, while `running` requests run.
    virtual void on_visit(LayerIndex layer, std::span<const ExpertDemand> used,
                          uint32_t running) = 0;
    // `expert` has arrived in a slot.
    virtual void on_loaded(ExpertId expert) = 0;
    // One score per ExpertId; valid until the next call of a non-const function.
    virtual std::span<const uint64_t> scores() const = 0;
};

struct EvictionShape {
    uint32_t layers = 0;
    uint32_t experts_per_layer = 0;
};

std::unique_ptr<EvictionPolicy> make_fifo_eviction(const EvictionShape& shape);
std::unique_ptr<EvictionPolicy> make_lru_eviction(const EvictionShape& shape);
std::unique_ptr<EvictionPolicy> make_two_rate_eviction(const EvictionShape& shape);

}  // namespace bevy
