// Which expert gives up its slot.
//
// A policy learns from what routers choose and names a victim when a slot is needed. It sees ids
// and visits, never bytes, slots or time, and computes in integers only, so the same routes give
// the same evictions on every machine. One file per policy, one row in registry.cc. A policy that
// gives every expert a score derives from ScoredEviction (scored.h) and is little more than a
// table.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/ids.h"
#include "core/reveal.h"

namespace bevy {

class ExpertCache;

// The experts that may go now: resident, and nobody needs them. Never empty.
class EvictionCandidates {
public:
    EvictionCandidates(std::span<const ExpertId> experts, const ExpertCache& cache,
                       bool protected_too)
        : experts_(experts), cache_(cache), protected_too_(protected_too) {}

    // In the order of their slots.
    std::span<const ExpertId> experts() const { return experts_; }
    bool contains(ExpertId expert) const;

private:
    std::span<const ExpertId> experts_;
    const ExpertCache& cache_;
    bool protected_too_;
};

class EvictionPolicy {
public:
    virtual ~EvictionPolicy() = default;

    // A request begins on `seq`, or is gone from it.
    virtual void on_start(SeqIndex) {}
    virtual void on_end(SeqIndex) {}
    // Comes before the misses of the same route are read, so a policy may also age what was not
    // used. REQUIRES: between on_start() and on_end() of its sequence.
    virtual void on_reveal(const Reveal& reveal) = 0;
    // An expert has arrived in a slot, or has lost it.
    virtual void on_loaded(ExpertId) {}
    virtual void on_evicted(ExpertId) {}

    // One of the candidates. Ties go to the lower slot.
    virtual ExpertId choose(const EvictionCandidates& candidates) = 0;
};

struct EvictionShape {
    uint32_t layers = 0;
    uint32_t experts_per_layer = 0;
    uint32_t experts_used = 1;  // per token and layer
    uint32_t sequences = 1;     // SeqIndex is below
    uint32_t slots = 1;
};

}  // namespace bevy
