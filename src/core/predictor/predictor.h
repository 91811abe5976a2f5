// Which experts a request will choose at layers that it has not reached yet: a guess.
//
// Guesses are for prefetching baselines (and for measuring what they are worth): nothing that is
// computed ever depends on one. A predictor learns from what routers choose, in integers only. One
// file per predictor, one row in registry.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "core/reveal.h"

namespace bevy {

class Predictor {
public:
    virtual ~Predictor() = default;

    // A request begins on `seq`, or is gone from it.
    virtual void on_start(SeqIndex) {}
    virtual void on_end(SeqIndex) {}
    // Of decode passes only: prompts use nearly every expert.
    virtual void on_reveal(const Reveal& reveal) = 0;

    // About the request whose reveal was the last on_reveal().
    struct Question {
        SeqIndex seq;
        uint32_t ahead = 1;       // layers from the revealed one, 1 .. lookahead
        LayerIndex target;        // the layer in question
        bool next_token = false;  // it belongs to the next token
    };
    // Appends the experts that are expected there, likeliest first, at most experts_used of them;
    // none if it does not know.
    virtual void predict(const Question& question, std::vector<ExpertIndex>& out) = 0;
};

struct PredictorShape {
    uint32_t layers = 0;
    uint32_t experts_per_layer = 0;
    uint32_t experts_used = 1;
    uint32_t sequences = 1;
    uint32_t lookahead = 1;
};

// The `count` experts with the largest scores, descending; ties go to the lower index. Experts that
// score 0 are left out.
void append_largest(std::span<const uint64_t> scores, uint32_t count,
                    std::vector<ExpertIndex>& out);

}  // namespace bevy
