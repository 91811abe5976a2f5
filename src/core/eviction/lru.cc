// Least recently used: the score of an expert is the visit that used it last. What most caches do,
// and what breaks down here: layers are visited cyclically, so with several requests the expert
// used longest ago is often the one needed next.
#include <vector>

#include "core/eviction/eviction.h"

namespace bevy {

namespace {

class Lru final : public EvictionPolicy {
public:
    explicit Lru(const EvictionShape& shape)
        : experts_per_layer_(shape.experts_per_layer),
          scores_(shape.layers * shape.experts_per_layer) {}

    void on_visit(LayerIndex layer, std::span<const ExpertDemand> used, uint32_t) override {
        visits_++;
        for (const ExpertDemand& demand : used)
            scores_[layer.value * experts_per_layer_ + demand.expert.value] = visits_;
    }
    void on_loaded(ExpertId) override {}
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
