// Least recently used within a layer: every layer has its share of the slots, and a layer that is
// over its share gives up what it used longest ago.
//
// What engines do that keep a cache per layer. It avoids the trap of lru.cc: the layers that come
// next were used longest ago, but what they hold is safe behind their share. The price is that a
// layer whose experts are used evenly can't borrow from one that always uses the same few.
//
// The slots are one pool, so a share is a rule for who gives, not a wall: while experts of a layer
// are pinned, another one gives, and gets the slot back later. If no layer is over its share, the
// slot that is wanted is for the layer that was revealed last, which then gives.
#include <vector>

#include "core/eviction/registry.h"

namespace bevy {

namespace {

class LruLayer final : public EvictionPolicy {
public:
    explicit LruLayer(const EvictionShape& shape)
        : experts_per_layer_(shape.experts_per_layer),
          last_uses_(size_t{shape.layers} * shape.experts_per_layer),
          excess_(shape.layers) {
        for (uint64_t layer = 0; layer < shape.layers; layer++) {
            uint64_t share =
                shape.slots * (layer + 1) / shape.layers - shape.slots * layer / shape.layers;
            excess_[layer] = -static_cast<int64_t>(share);
        }
    }

    void on_reveal(const Reveal& reveal) override {
        revealed_ = reveal.layer.value;
        reveals_++;
        for (const ExpertDemand& demand : reveal.used)
            last_uses_[revealed_ * experts_per_layer_ + demand.expert.value] = reveals_;
    }
    void on_loaded(ExpertId expert) override { excess_[layer_of(expert)]++; }
    void on_evicted(ExpertId expert) override { excess_[layer_of(expert)]--; }

    ExpertId choose(const EvictionCandidates& candidates) override {
        ExpertId chosen = candidates.experts().front();
        for (ExpertId expert : candidates.experts()) {
            if (goes_before(expert, chosen))
                chosen = expert;
        }
        return chosen;
    }

private:
    uint32_t layer_of(ExpertId expert) const { return expert.value / experts_per_layer_; }
    bool goes_before(ExpertId a, ExpertId b) const {
        uint32_t layer_a = layer_of(a);
        uint32_t layer_b = layer_of(b);
        if (excess_[layer_a] != excess_[layer_b])
            return excess_[layer_a] > excess_[layer_b];
        if ((layer_a == revealed_) != (layer_b == revealed_))
            return layer_a == revealed_;
        return last_uses_[a.value] < last_uses_[b.value];
    }

    uint32_t experts_per_layer_;
    std::vector<uint64_t> last_uses_;  // per expert: the reveal that used it last
    std::vector<int64_t> excess_;      // per layer: experts it holds beyond its share
    uint64_t reveals_ = 0;
    uint32_t revealed_ = 0;  // layer
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lru_layer_eviction(const EvictionShape& shape) {
    return std::make_unique<LruLayer>(shape);
}

}  // namespace bevy
