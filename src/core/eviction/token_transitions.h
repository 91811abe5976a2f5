// How often a token uses an expert after its predecessor has used another one of the same layer:
// the share of "then" among the successors of "before", for every pair, learned as it happens.
//
// One table for all requests: pairs are a property of the model, and one request alone would fill
// too few of them. What is learned fades within about 64 tokens that used "before", which was
// better than a table fitted beforehand and kept.
//
// Memory: 2 * layers * experts^2 bytes; 49 KB for 24 layers of 32, 1.6 MB for 48 of 128.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/eviction/eviction.h"

namespace bevy {

class TokenTransitions {
public:
    // At first every expert follows every other as often as chance would have it.
    explicit TokenTransitions(const EvictionShape& shape);

    // A token used `now` at the layer, its predecessor had used `before`.
    void learn(LayerIndex layer, std::span<const uint16_t> before,
               std::span<const ExpertDemand> now);
    // Adds, for every expert, the shares of all `now` as "before", in 1 / kProbabilityOne.
    void add_followers(LayerIndex layer, std::span<const ExpertDemand> now,
                       std::span<uint32_t> sums) const;

private:
    size_t row(LayerIndex layer, uint32_t before) const {
        return (size_t{layer.value} * experts_per_layer_ + before) * experts_per_layer_;
    }

    uint32_t experts_per_layer_;
    std::vector<uint16_t> shares_;
};

}  // namespace bevy
