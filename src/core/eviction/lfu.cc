// Least frequently used, with decay: the score of an expert is the share of the visits of its layer
// that used it, forgotten within about 64 visits per running request.
//
// Frequency does not care in which order layers are visited, so it survives the cycle that ruins
// LRU. One rate is a compromise: 16 visits know better what a text is about, 256 what the model
// likes; see two_rate.cc, which keeps both, and lfru.cc. Without decay, what was popular in the
// first hour would never leave.
#include <algorithm>
#include <vector>

#include "core/eviction/registry.h"
#include "core/eviction/scored.h"

namespace bevy {

namespace {

constexpr uint64_t kOne = uint64_t{1} << 30;
constexpr uint64_t kVisitsPerRequest = 64;

class Lfu final : public ScoredEviction {
public:
    explicit Lfu(const EvictionShape& shape)
        : experts_per_layer_(shape.experts_per_layer),
          scores_(size_t{shape.layers} * shape.experts_per_layer) {}

    void on_reveal(const Reveal& reveal) override {
        uint64_t visits = kVisitsPerRequest * std::max<uint32_t>(reveal.running, 1);
        // A 32-bit fixed-point share to keep, so that the loop has no division.
        uint64_t keep = (uint64_t{1} << 32) - (uint64_t{1} << 32) / visits;
        size_t first = size_t{reveal.layer.value} * experts_per_layer_;
        for (size_t i = first; i < first + experts_per_layer_; i++)
            scores_[i] = (scores_[i] * keep) >> 32;
        for (const ExpertDemand& demand : reveal.used)
            scores_[first + demand.expert.value] += kOne / visits;
    }
    std::span<const uint64_t> scores() const override { return scores_; }

private:
    uint32_t experts_per_layer_;
    std::vector<uint64_t> scores_;  // below 2 * kOne
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lfu_eviction(const EvictionShape& shape) {
    return std::make_unique<Lfu>(shape);
}

}  // namespace bevy
