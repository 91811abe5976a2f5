// First in, first out: the score of an expert is when it was loaded. The yardstick that any other
// policy has to beat.
#include <vector>

#include "core/eviction/registry.h"
#include "core/eviction/scored.h"

namespace bevy {

namespace {

class Fifo final : public ScoredEviction {
public:
    explicit Fifo(const EvictionShape& shape) : scores_(shape.layers * shape.experts_per_layer) {}

    void on_reveal(const Reveal&) override {}
    void on_loaded(ExpertId expert) override { scores_[expert.value] = ++loads_; }
    std::span<const uint64_t> scores() const override { return scores_; }

private:
    std::vector<uint64_t> scores_;
    uint64_t loads_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_fifo_eviction(const EvictionShape& shape) {
    return std::make_unique<Fifo>(shape);
}

}  // namespace bevy
