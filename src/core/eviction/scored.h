// An eviction policy that is a table of scores, one per expert of the model: the smallest goes.
#pragma once

#include <cstdint>
#include <span>

#include "core/eviction/eviction.h"

namespace bevy {

class ScoredEviction : public EvictionPolicy {
public:
    // One score per ExpertId; valid until the next call of a non-const function.
    virtual std::span<const uint64_t> scores() const = 0;

    // Linear in the candidates, a few microseconds, once per read of megabytes: an ordered
    // structure would cost more, since a visit changes every score of a layer.
    ExpertId choose(const EvictionCandidates& candidates) override {
        std::span<const uint64_t> table = scores();
        ExpertId chosen = candidates.experts().front();
        for (ExpertId expert : candidates.experts()) {
            if (table[expert.value] < table[chosen.value])
                chosen = expert;
        }
        return chosen;
    }
};

}  // namespace bevy
