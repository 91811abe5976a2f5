// Least frequently and recently used: decayed frequency (lfu.cc) divided by how long ago the last
// use was.
//
// An expert that was used 10 times in 64 visits and not in the last 20 is probably past; one that
// was used as often and just now is not. Frequency alone takes the same long to forget both. The
// age is counted in visits of the expert's own layer, so that the cycle of layers, in which every
// other layer is always older, has no influence.
#include <algorithm>
#include <vector>

#include "core/eviction/registry.h"
#include "core/eviction/scored.h"

namespace bevy {

namespace {

constexpr uint64_t kOne = uint64_t{1} << 30;
constexpr uint64_t kVisitsPerRequest = 64;

class Lfru final : public ScoredEviction {
public:
    explicit Lfru(const EvictionShape& shape)
        : experts_per_layer_(shape.experts_per_layer),
          rates_(size_t{shape.layers} * shape.experts_per_layer),
          last_visits_(rates_.size()),
          visits_(shape.layers),
          scores_(rates_.size()) {}

    void on_reveal(const Reveal& reveal) override {
        uint64_t requests = std::max<uint32_t>(reveal.running, 1);
        uint64_t window = kVisitsPerRequest * requests;
        uint64_t keep = (uint64_t{1} << 32) - (uint64_t{1} << 32) / window;
        size_t first = size_t{reveal.layer.value} * experts_per_layer_;
        uint64_t visit = ++visits_[reveal.layer.value];
        for (size_t i = first; i < first + experts_per_layer_; i++)
            rates_[i] = (rates_[i] * keep) >> 32;
        for (const ExpertDemand& demand : reveal.used) {
            rates_[first + demand.expert.value] += kOne / window;
            last_visits_[first + demand.expert.value] = visit;
        }
        // One round of visits by all requests is the youngest that ages are told apart.
        for (size_t i = first; i < first + experts_per_layer_; i++)
            scores_[i] = (rates_[i] << 16) / (visit - last_visits_[i] + requests);
    }
    std::span<const uint64_t> scores() const override { return scores_; }

private:
    uint32_t experts_per_layer_;
    std::vector<uint64_t> rates_;        // below 2 * kOne
    std::vector<uint64_t> last_visits_;  // per expert: the visit of its layer that used it last
    std::vector<uint64_t> visits_;       // per layer
    std::vector<uint64_t> scores_;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lfru_eviction(const EvictionShape& shape) {
    return std::make_unique<Lfru>(shape);
}

}  // namespace bevy
