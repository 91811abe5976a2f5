#include "core/eviction/token_transitions.h"

#include <algorithm>

#include "core/eviction/probability.h"

namespace bevy {

namespace {

constexpr uint32_t kForgetShift = 6;
// A share that only grows ends at kGain << kForgetShift, which still is a uint16_t.
constexpr uint16_t kGain = (kProbabilityOne >> kForgetShift) - 1;

}  // namespace

TokenTransitions::TokenTransitions(const EvictionShape& shape)
    : experts_per_layer_(shape.experts_per_layer),
      shares_(size_t{shape.layers} * shape.experts_per_layer * shape.experts_per_layer,
              static_cast<uint16_t>(
                  std::min(kProbabilityOne * shape.experts_used / shape.experts_per_layer,
                           uint32_t{kGain} << kForgetShift))) {}

void TokenTransitions::learn(LayerIndex layer, std::span<const uint16_t> before,
                             std::span<const ExpertDemand> now) {
    for (uint16_t expert : before) {
        std::span<uint16_t> shares =
            std::span(shares_).subspan(row(layer, expert), experts_per_layer_);
        for (uint16_t& share : shares)
            share = static_cast<uint16_t>(share - (share >> kForgetShift));
        for (const ExpertDemand& demand : now)
            shares[demand.expert.value] =
                static_cast<uint16_t>(shares[demand.expert.value] + kGain);
    }
}

void TokenTransitions::add_followers(LayerIndex layer, std::span<const ExpertDemand> now,
                                     std::span<uint32_t> sums) const {
    for (const ExpertDemand& demand : now) {
        const uint16_t* shares = shares_.data() + row(layer, demand.expert.value);
        for (uint32_t e = 0; e < experts_per_layer_; e++)
            sums[e] += shares[e];
    }
}

}  // namespace bevy
