#include "sim/known_future_eviction.h"

#include <algorithm>

#include "base/assert.h"

namespace bevy {

namespace {

constexpr uint32_t kNever = UINT32_MAX;
// Farther uses all count the same: caches turn over long before.
constexpr uint32_t kPassesMax = 256;

}  // namespace

KnownFutureEviction::KnownFutureEviction(const ReplayCompute& compute, uint32_t layers,
                                         uint32_t experts_per_layer, uint32_t sequences)
    : compute_(compute), layers_(layers), experts_(experts_per_layer), places_(sequences) {
    for (Place& place : places_)
        place.next_use.resize(size_t{layers} * experts_per_layer);
}

void KnownFutureEviction::on_start(SeqIndex seq) {
    Place& place = places_[seq.value];
    place.running = true;
    place.revealed = false;
    place.pass = 0;
}

void KnownFutureEviction::on_end(SeqIndex seq) {
    places_[seq.value].running = false;
}

void KnownFutureEviction::on_reveal(const Reveal& reveal) {
    Place& place = places_[reveal.seq.value];
    BEVY_ASSERT(place.running);
    place.layer = reveal.layer.value;
    place.pass += reveal.layer.value == 0;
    if (!place.revealed) {
        // The layers behind this one are still to come in this very pass.
        for (uint32_t layer = 0; layer < layers_; layer++)
            look_ahead(reveal.seq, layer, layer > place.layer ? 0 : 1);
        place.revealed = true;
    } else {
        look_ahead(reveal.seq, place.layer, 1);
    }
}

void KnownFutureEviction::look_ahead(SeqIndex seq, uint32_t layer, uint32_t passes_ahead) {
    Place& place = places_[seq.value];
    const std::span<uint32_t> next =
        std::span(place.next_use).subspan(size_t{layer} * experts_, experts_);
    std::ranges::fill(next, kNever);
    uint32_t unknown = experts_;
    for (uint32_t ahead = passes_ahead; ahead < kPassesMax && unknown > 0; ahead++) {
        const std::span<const uint8_t> route = compute_.future_route(seq, ahead, LayerIndex(layer));
        if (route.empty())
            break;
        for (const uint8_t expert : route) {
            if (next[expert] != kNever)
                continue;
            next[expert] = place.pass + ahead;
            unknown--;
        }
    }
}

uint64_t KnownFutureEviction::distance(ExpertId expert) const {
    const uint32_t layer = expert.value / experts_;
    uint64_t least = UINT64_MAX;
    for (const Place& place : places_) {
        if (!place.running || !place.revealed || place.next_use[expert.value] == kNever)
            continue;
        // A use at the current layer of the current pass is behind us; at a later one, ahead.
        const uint64_t passes = place.next_use[expert.value] - place.pass;
        least = std::min(least, passes * layers_ + layer - place.layer);
    }
    return least;
}

ExpertId KnownFutureEviction::choose(const EvictionCandidates& candidates) {
    ExpertId farthest = candidates.experts().front();
    uint64_t most = distance(farthest);
    for (const ExpertId expert : candidates.experts().subspan(1)) {
        if (const uint64_t far = distance(expert); far > most) {
            farthest = expert;
            most = far;
        }
    }
    return farthest;
}

}  // namespace bevy
