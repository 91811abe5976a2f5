// SIEVE (Zhang et al., "SIEVE is simpler than LRU", NSDI 2024): a queue in order of arrival, a bit
// per expert that says "used since it was last looked at", and a hand.
//
// A new expert enters at the young end without the bit; a use sets it. To evict, the hand walks
// from the old end towards the young one: it clears set bits and stops at the first expert whose
// bit is clear. It stays where it stopped, so newcomers are looked at soon and unpopular ones leave
// quickly, while survivors keep their place without being moved.
//
// Adapted to pins: an expert that can't go now is passed over and keeps its bit. Where all layers
// are visited in turn, nearly every bit is set when the hand comes by, and little is left to tell
// experts apart: a comparison, good in the caches of the web, rarely here.
#include <algorithm>
#include <vector>

#include "core/eviction/registry.h"

namespace bevy {

namespace {

class Sieve final : public EvictionPolicy {
public:
    explicit Sieve(const EvictionShape& shape)
        : experts_per_layer_(shape.experts_per_layer),
          used_(size_t{shape.layers} * shape.experts_per_layer) {
        queue_.reserve(shape.slots);
    }

    // The use that an expert was loaded for does not count: on_loaded() comes later.
    void on_reveal(const Reveal& reveal) override {
        for (const ExpertDemand& demand : reveal.used)
            used_[reveal.layer.value * experts_per_layer_ + demand.expert.value] = true;
    }
    void on_loaded(ExpertId expert) override {
        used_[expert.value] = false;
        queue_.push_back(expert);
    }
    void on_evicted(ExpertId expert) override {
        auto place = std::ranges::find(queue_, expert);
        size_t index = static_cast<size_t>(place - queue_.begin());
        queue_.erase(place);
        if (index < hand_)
            hand_--;
    }

    // At most two rounds: after the first, no candidate has a bit.
    ExpertId choose(const EvictionCandidates& candidates) override {
        for (;; hand_++) {
            if (hand_ >= queue_.size())
                hand_ = 0;
            ExpertId expert = queue_[hand_];
            if (!candidates.contains(expert))
                continue;
            if (!used_[expert.value])
                return expert;
            used_[expert.value] = false;
        }
    }

private:
    uint32_t experts_per_layer_;
    std::vector<ExpertId> queue_;  // oldest first
    size_t hand_ = 0;              // index in queue_
    std::vector<bool> used_;       // by ExpertId
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_sieve_eviction(const EvictionShape& shape) {
    return std::make_unique<Sieve>(shape);
}

}  // namespace bevy
