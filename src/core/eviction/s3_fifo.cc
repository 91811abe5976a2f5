// S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023): three queues
// in order of arrival.
//
// Most of what a cache loads is used once. New experts enter a small queue, a tenth of the slots;
// what leaves it without having been used twice more is evicted, and its name goes to the ghost
// queue. What was moves to the main queue instead, and what comes back while its name is a ghost
// enters there. At the old end of the main queue, an expert that was used since it was last there
// goes back to the young end, up to three times, then it is evicted.
//
// Adapted to pins: an expert that can't go now keeps its place and its uses. Experts are few and
// are used again and again, so the small queue rarely finds what is used once; a comparison, like
// sieve.cc.
#include <algorithm>
#include <vector>

#include "core/eviction/registry.h"

namespace bevy {

namespace {

constexpr uint8_t kUsesMax = 3;
constexpr uint32_t kSmallShare = 10;  // the small queue is one of so many parts

class S3Fifo final : public EvictionPolicy {
public:
    explicit S3Fifo(const EvictionShape& shape)
        : experts_per_layer_(shape.experts_per_layer),
          small_max_(std::max(shape.slots / kSmallShare, 1u)),
          ghosts_max_(shape.slots - std::min(shape.slots, small_max_)),
          uses_(size_t{shape.layers} * shape.experts_per_layer) {
        small_.reserve(shape.slots);
        main_.reserve(shape.slots);
        ghosts_.reserve(ghosts_max_ + 1);
    }

    // The use that an expert was loaded for does not count: on_loaded() comes later.
    void on_reveal(const Reveal& reveal) override {
        for (const ExpertDemand& demand : reveal.used) {
            uint8_t& uses = uses_[reveal.layer.value * experts_per_layer_ + demand.expert.value];
            uses = std::min<uint8_t>(uses + 1, kUsesMax);
        }
    }
    void on_loaded(ExpertId expert) override {
        uses_[expert.value] = 0;
        bool was_here = std::erase(ghosts_, expert) > 0;
        (was_here ? main_ : small_).push_back(expert);
    }
    void on_evicted(ExpertId expert) override {
        if (std::erase(small_, expert) == 0) {
            std::erase(main_, expert);
            return;
        }
        ghosts_.push_back(expert);
        if (ghosts_.size() > ghosts_max_)
            ghosts_.erase(ghosts_.begin());
    }

    ExpertId choose(const EvictionCandidates& candidates) override {
        if (small_.size() >= small_max_) {
            if (const ExpertId* expert = oldest_used_once(candidates))
                return *expert;
        }
        if (const ExpertId* expert = oldest_of_main(candidates))
            return *expert;
        // Everything that can go lies in a small queue that is not full.
        return *std::ranges::find_if(small_, [&](ExpertId e) { return candidates.contains(e); });
    }

private:
    // Moves to the main queue what was used again. Null: nothing in the small queue can go.
    const ExpertId* oldest_used_once(const EvictionCandidates& candidates) {
        for (size_t i = 0; i < small_.size();) {
            ExpertId expert = small_[i];
            if (!candidates.contains(expert)) {
                i++;
            } else if (uses_[expert.value] > kUsesToStay) {
                uses_[expert.value] = 0;
                small_.erase(small_.begin() + static_cast<ptrdiff_t>(i));
                main_.push_back(expert);
            } else {
                return &small_[i];
            }
        }
        return nullptr;
    }
    // Null: nothing in the main queue can go. Each round takes a use from every candidate.
    const ExpertId* oldest_of_main(const EvictionCandidates& candidates) {
        for (uint32_t round = 0; round <= kUsesMax; round++) {
            for (size_t left = main_.size(), i = 0; left > 0; left--) {
                ExpertId expert = main_[i];
                if (!candidates.contains(expert)) {
                    i++;
                    continue;
                }
                if (uses_[expert.value] == 0)
                    return &main_[i];
                uses_[expert.value]--;
                main_.erase(main_.begin() + static_cast<ptrdiff_t>(i));
                main_.push_back(expert);
            }
        }
        return nullptr;
    }

    static constexpr uint8_t kUsesToStay = 1;  // more than this many earn a place in the main queue

    uint32_t experts_per_layer_;
    uint32_t small_max_;
    uint32_t ghosts_max_;
    std::vector<uint8_t> uses_;    // by ExpertId, at most kUsesMax
    std::vector<ExpertId> small_;  // all queues: oldest first
    std::vector<ExpertId> main_;
    std::vector<ExpertId> ghosts_;  // evicted from the small queue
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_s3_fifo_eviction(const EvictionShape& shape) {
    return std::make_unique<S3Fifo>(shape);
}

}  // namespace bevy
