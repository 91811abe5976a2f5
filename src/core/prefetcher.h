// Prefetching: guesses of a predictor, turned into reads that only an idle link serves.
//
// For every running request the prefetcher holds what its predictor expects at the next layers,
// while few enough requests run (`requests_max`): with many, the link is rarely idle.
// Rules: a guess is read only while no demand read is wanted or in flight; it takes no slot from an
// expert that is itself expected; what is expected keeps its slot while anything else can go; when
// the layer is revealed, its guesses are over, and a read that nobody needs or expects any more is
// cancelled. Nothing that is computed depends on a guess.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "core/predictor/predictor.h"
#include "core/state.h"
#include "core/stats.h"

namespace bevy {

class Prefetcher {
public:
    Prefetcher(const CoreConfig& config, std::unique_ptr<Predictor> predictor,
               uint32_t requests_max);

    // Guesses are made while so many requests run.
    bool guesses_with(uint32_t running) const { return running <= requests_max_; }

    void on_start(SeqIndex seq) { predictor_->on_start(seq); }
    void on_end(CoreState& state, SeqIndex seq);
    // REQUIRES: the demands of the same route have been entered into the cache.
    void on_reveal(CoreState& state, const Reveal& reveal, CoreStats& stats);
    // True: the expert lies in its slot, or is on its way there, for the sake of a guess alone.
    bool is_prefetched(ExpertId expert) const { return prefetched_[expert.value]; }
    // The expert has lost its slot.
    void on_evicted(ExpertId expert) { prefetched_[expert.value] = false; }
    // A read of the expert has ended. One that failed is not tried again for a guess until a
    // demand read of it succeeds.
    void on_read_done(ExpertId expert, bool ok, bool cancelled);

    // The guess to read next: the nearest layers first, among them the most lagging request. Marks
    // it as prefetched. Nothing when the link is not idle or no slot may be taken. REQUIRES: every
    // demand is resident or on its way.
    std::optional<ExpertId> next(const CoreState& state);

    // Aborts when an invariant is broken. Slow; for tests and idle times.
    void check_invariants(const CoreState& state) const;

private:
    // What is expected of one request at one layer.
    struct Guess {
        bool valid = false;
        LayerIndex layer;
        std::vector<ExpertIndex> experts;
        std::vector<uint8_t> absent;  // parallel: in no slot when it was guessed
    };
    Guess& guess(SeqIndex seq, uint32_t ahead) {
        return guesses_[size_t{seq.value} * lookahead_ + ahead - 1];
    }
    void drop(CoreState& state, Guess& guess);
    void predict(CoreState& state, const Reveal& reveal);

    std::unique_ptr<Predictor> predictor_;
    uint32_t lookahead_;
    uint32_t reads_max_;
    uint32_t requests_max_;
    std::vector<Guess> guesses_;       // by sequence and distance
    std::vector<uint8_t> prefetched_;  // by expert: read for a guess, and not needed since
    std::vector<uint8_t> unreadable_;  // by expert: the last read failed
    std::vector<uint32_t> order_;      // reused
};

}  // namespace bevy
