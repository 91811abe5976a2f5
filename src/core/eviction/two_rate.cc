// Two-rate decayed frequency: how often an expert was used lately, measured twice.
//
// For every expert two running means of "used at a visit of its layer" are kept, in units of 2^-30:
// one forgets within about 4 visits per running request, one within about 128. Their sum is the
// score. The fast one knows what the current texts are about, the slow one what the model likes in
// general. Unlike recency, frequency does not care in which order layers are visited, so it
// survives the cyclic order that ruins LRU.
//
// A visit updates all experts of its layer, including those that are not resident: what was evicted
// keeps its history.
#include <algorithm>
#include <vector>

#include "core/eviction/registry.h"
#include "core/eviction/scored.h"

namespace bevy {

namespace {

constexpr uint64_t kOne = uint64_t{1} << 30;
constexpr uint64_t kFastVisitsPerRequest = 4;
constexpr uint64_t kSlowVisitsPerRequest = 128;

class TwoRate final : public ScoredEviction {
public:
    explicit TwoRate(const EvictionShape& shape)
        : experts_per_layer_(shape.experts_per_layer),
          fast_(shape.layers * shape.experts_per_layer),
          slow_(fast_.size()),
          scores_(fast_.size()) {}

    void on_reveal(const Reveal& reveal) override {
        uint64_t requests = std::max<uint32_t>(reveal.running, 1);
        uint64_t fast_visits = kFastVisitsPerRequest * requests;
        uint64_t slow_visits = kSlowVisitsPerRequest * requests;
        size_t first = size_t{reveal.layer.value} * experts_per_layer_;
        // 32-bit fixed-point shares to keep, so that the loop has no division.
        uint64_t keep_fast = (uint64_t{1} << 32) - (uint64_t{1} << 32) / fast_visits;
        uint64_t keep_slow = (uint64_t{1} << 32) - (uint64_t{1} << 32) / slow_visits;
        for (size_t i = first; i < first + experts_per_layer_; i++) {
            fast_[i] = static_cast<uint32_t>((fast_[i] * keep_fast) >> 32);
            slow_[i] = static_cast<uint32_t>((slow_[i] * keep_slow) >> 32);
        }
        for (const ExpertDemand& demand : reveal.used) {
            fast_[first + demand.expert.value] += static_cast<uint32_t>(kOne / fast_visits);
            slow_[first + demand.expert.value] += static_cast<uint32_t>(kOne / slow_visits);
        }
        for (size_t i = first; i < first + experts_per_layer_; i++)
            scores_[i] = uint64_t{fast_[i]} + slow_[i];
    }
    std::span<const uint64_t> scores() const override { return scores_; }

private:
    uint32_t experts_per_layer_;
    std::vector<uint32_t> fast_;  // below 2 * kOne
    std::vector<uint32_t> slow_;
    std::vector<uint64_t> scores_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_two_rate_eviction(const EvictionShape& shape) {
    return std::make_unique<TwoRate>(shape);
}

}  // namespace bevy
