// Least recently used: the score of an expert is the visit that used it last. What most caches do,
// and what breaks down here: layers are visited cyclically, so with several requests the expert
// used longest ago is often the one needed next.
#include <vector>

#include "core/eviction/registry.h"
#include "core/eviction/scored.h"

namespace bevy {

namespace {

class Lru final : public ScoredEviction {
public:
    explicit Lru(const EvictionShape& shape)
        : experts_per_layer_(shape.experts_per_layer),
          scores_(shape.layers * shape.experts_per_layer) {}

    void on_reveal(const Reveal& reveal) override {
        visits_++;
        for (const ExpertDemand& demand : reveal.used)
            scores_[reveal.layer.value * experts_per_layer_ + demand.expert.value] = visits_;
    }
    std::span<const uint64_t> scores() const override { return scores_; }

private:
    uint32_t experts_per_layer_;
    std::vector<uint64_t> scores_;
    uint64_t visits_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lru_eviction(const EvictionShape& shape) {
    return std::make_unique<Lru>(shape);
}

}  // namespace bevy
