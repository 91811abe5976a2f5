// Evicts what is used again last by the requests that run, which only a simulation can know: what
// policies that have to guess are compared with (L. A. Belady, "A study of replacement algorithms
// for a virtual-storage computer", 1966, where there is one sequence of uses).
//
// In an interleaved run the order of uses is not known either, since it depends on what is evicted.
// What is known is each request's own future: the distance of an expert is the number of layers
// that a request has to go to where it uses the expert next, for the request that has to go least.
// That is no strict bound: with many requests and a small cache, who gets there first matters more.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/eviction/eviction.h"
#include "sim/replay_compute.h"

namespace bevy {

constexpr std::string_view kKnownFutureEviction = "known-future";

class KnownFutureEviction final : public EvictionPolicy {
public:
    // `compute` outlives it.
    KnownFutureEviction(const ReplayCompute& compute, uint32_t layers, uint32_t experts_per_layer,
                        uint32_t sequences);

    void on_start(SeqIndex seq) override;
    void on_end(SeqIndex seq) override;
    void on_reveal(const Reveal& reveal) override;
    ExpertId choose(const EvictionCandidates& candidates) override;

private:
    struct Place {
        bool running = false;
        bool revealed = false;  // anything, since it started
        uint32_t pass = 0;
        uint32_t layer = 0;              // revealed last
        std::vector<uint32_t> next_use;  // [ExpertId]: number of the pass that uses it next
    };
    // What `layer` uses next, from `passes_ahead` behind the current one on.
    void look_ahead(SeqIndex seq, uint32_t layer, uint32_t passes_ahead);
    uint64_t distance(ExpertId expert) const;

    const ReplayCompute& compute_;
    const uint32_t layers_;
    const uint32_t experts_;
    std::vector<Place> places_;
};

}  // namespace bevy
