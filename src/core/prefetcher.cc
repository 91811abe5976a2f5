#include "core/prefetcher.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace bevy {

Prefetcher::Prefetcher(const CoreConfig& config, std::unique_ptr<Predictor> predictor,
                       uint32_t requests_max)
    : predictor_(std::move(predictor)),
      lookahead_(config.lookahead),
      reads_max_(std::min(config.prefetch_reads_max, config.reads_inflight_max)),
      requests_max_(requests_max),
      guesses_(size_t{config.sequences} * config.lookahead),
      prefetched_(size_t{config.moe_layers} * config.experts_per_layer),
      unreadable_(prefetched_.size()) {
    for (Guess& guess : guesses_) {
        guess.experts.reserve(config.experts_used);
        guess.absent.reserve(config.experts_used);
    }
    order_.reserve(config.sequences);
}

void Prefetcher::drop(CoreState& state, Guess& guess) {
    if (!guess.valid)
        return;
    guess.valid = false;
    for (ExpertIndex e : guess.experts) {
        ExpertId expert = state.expert_id(guess.layer.value, e);
        state.cache.unprotect(expert);
        if (state.cache.protections(expert) == 0)
            prefetched_[expert.value] = false;  // nobody expects it any more: it was read in vain
    }
}

void Prefetcher::on_end(CoreState& state, SeqIndex seq) {
    for (uint32_t ahead = 1; ahead <= lookahead_; ahead++)
        drop(state, guess(seq, ahead));
    predictor_->on_end(seq);
}

void Prefetcher::on_reveal(CoreState& state, const Reveal& reveal, CoreStats& stats) {
    for (const ExpertDemand& demand : reveal.used) {
        ExpertId expert = state.expert_id(reveal.layer.value, demand.expert);
        if (!std::exchange(prefetched_[expert.value], false))
            continue;
        if (state.cache.residency(expert) != Residency::kAbsent)
            stats.prefetches_useful++;
    }
    for (uint32_t ahead = 1; ahead <= lookahead_; ahead++) {
        Guess& old = guess(reveal.seq, ahead);
        if (!old.valid || old.layer != reveal.layer)
            continue;
        for (size_t i = 0; i < old.experts.size(); i++) {
            bool right = std::ranges::contains(reveal.used, old.experts[i], &ExpertDemand::expert);
            stats.guesses++;
            stats.guesses_right += right;
            stats.guesses_absent += old.absent[i];
            stats.guesses_absent_right += old.absent[i] && right;
        }
    }
    if (reveal.tokens > 1)
        return;  // a chunk: what it needs says nothing about what comes
    predictor_->on_reveal(reveal);
    if (guesses_with(reveal.running)) {
        predict(state, reveal);
        return;
    }
    for (uint32_t ahead = 1; ahead <= lookahead_; ahead++)
        drop(state, guess(reveal.seq, ahead));
}

void Prefetcher::on_read_done(ExpertId expert, bool ok, bool cancelled) {
    if (!ok)
        prefetched_[expert.value] = false;
    if (!cancelled)
        unreadable_[expert.value] = !ok;
}

void Prefetcher::predict(CoreState& state, const Reveal& reveal) {
    uint32_t layers = state.config.moe_layers;
    // New guesses are protected before the old ones are dropped, so that an expert in both is never
    // without protection.
    std::vector<ExpertIndex> experts;
    for (uint32_t ahead = 1; ahead <= lookahead_; ahead++) {
        uint32_t target = reveal.layer.value + ahead;
        experts.clear();
        predictor_->predict({.seq = reveal.seq,
                             .ahead = ahead,
                             .target = LayerIndex(target % layers),
                             .next_token = target >= layers},
                            experts);
        BEVY_ASSERT(experts.size() <= state.config.experts_used);
        for (ExpertIndex e : experts)
            state.cache.protect(state.expert_id(target % layers, e));
        Guess& place = guess(reveal.seq, ahead);
        drop(state, place);
        place.layer = LayerIndex(target % layers);
        place.experts.assign(experts.begin(), experts.end());
        place.absent.clear();
        for (ExpertIndex e : experts)
            place.absent.push_back(state.cache.residency(state.expert_id(target % layers, e)) ==
                                   Residency::kAbsent);
        place.valid = true;
    }
}

std::optional<ExpertId> Prefetcher::next(const CoreState& state) {
    if (state.reads_inflight >= reads_max_ || !state.cache.has_room_for_guess() ||
        state.link_wanted())
        return std::nullopt;
    order_.clear();
    for (uint32_t i = 0; i < state.sequences.size(); i++) {
        if (state.sequences[i].phase != Phase::kFree && !state.sequences[i].abandoned)
            order_.push_back(i);
    }
    std::ranges::sort(order_, [&](uint32_t a, uint32_t b) {
        return state.sequences[a].lags_behind(state.sequences[b]);
    });
    for (uint32_t ahead = 1; ahead <= lookahead_; ahead++) {
        for (uint32_t i : order_) {
            const Guess& candidate = guess(SeqIndex(i), ahead);
            if (!candidate.valid)
                continue;
            for (ExpertIndex e : candidate.experts) {
                ExpertId expert = state.expert_id(candidate.layer.value, e);
                if (state.cache.residency(expert) != Residency::kAbsent ||
                    unreadable_[expert.value])
                    continue;
                prefetched_[expert.value] = true;
                return expert;
            }
        }
    }
    return std::nullopt;
}

void Prefetcher::check_invariants(const CoreState& state) const {
    std::vector<uint32_t> protections(prefetched_.size());
    for (size_t i = 0; i < guesses_.size(); i++) {
        if (!guesses_[i].valid)
            continue;
        BEVY_ASSERT(state.sequences[i / lookahead_].phase != Phase::kFree);
        for (ExpertIndex e : guesses_[i].experts)
            protections[state.expert_id(guesses_[i].layer.value, e).value]++;
    }
    for (uint32_t i = 0; i < protections.size(); i++) {
        ExpertId expert(i);
        BEVY_ASSERT(protections[i] == state.cache.protections(expert));
        if (!prefetched_[i])
            continue;
        BEVY_ASSERT(protections[i] > 0);
        BEVY_ASSERT(state.cache.residency(expert) != Residency::kAbsent);
        BEVY_ASSERT(state.cache.demands(expert) == 0);
    }
}

}  // namespace bevy
