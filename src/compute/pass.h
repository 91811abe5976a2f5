// Where each sequence's current pass stands between two steps. Compute thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"

namespace bevy {

struct Pass {
    // One choice of an expert: which of the pass's rows, as its how-manieth expert.
    struct Choice {
        uint32_t row = 0;  // from the pass's first live row
        uint32_t rank = 0;
    };
    struct Chosen {
        ExpertIndex expert;
        uint32_t begin = 0;  // into `choices`
        uint32_t end = 0;
        bool done = false;  // a step has computed it
    };

    bool active = false;
    bool wants_logits = false;
    uint32_t next_stage = 0;
    uint32_t first_position = 0;  // of the first live row
    uint32_t row = 0;             // first live activation row
    uint32_t rows = 0;            // live rows; 1 goes with the single tokens of other sequences
    std::optional<uint32_t> lane;
    std::vector<Chosen> route;  // of MoE layer next_stage - 1
    std::vector<Choice> choices;

    // Null: this pass did not choose it.
    Chosen* find(ExpertIndex expert) {
        for (Chosen& chosen : route) {
            if (chosen.expert == expert)
                return &chosen;
        }
        return nullptr;
    }
};

}  // namespace bevy
