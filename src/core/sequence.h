// One running request, as the core sees it: where it is, what it still needs, and how far behind it
// lags.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "core/action.h"

namespace bevy {

// One expert that the request's router chose at its current layer, and what became of it.
struct Demand {
    ExpertId expert;
    uint32_t rows = 1;
    bool running = false;  // part of the step in flight
    bool done = false;     // computed
};

enum class Phase : uint8_t {
    kFree,      // no request
    kEntry,     // the next pass may start
    kExperts,   // between two dense parts: experts are missing, resident or computed
    kStep,      // advancing in the step in flight
    kSampling,  // logits are out, the engine takes a token
};

struct Sequence {
    Phase phase = Phase::kFree;
    RequestId request;
    bool abandoned = false;  // cancelled or failed, but still part of the step in flight

    uint32_t prompt_tokens = 0;
    std::vector<TokenId> prompt;  // empty: its chunks are not kept
    uint32_t position = 0;        // tokens whose passes are complete
    uint32_t target = 0;          // tokens known: prompt, then one more per sampled token
    PassRange pass;
    uint32_t stage = 0;  // the next stage to run

    // Virtual progress in layers: the request with the smallest is the most lagging one and is
    // served first, on the processor and on the link. One stage of a decode pass counts 1. A
    // prefill chunk counts what it takes: (distinct experts) / (experts per token) at each layer,
    // so that a long prompt does not keep the link from everybody else.
    uint64_t progress = 0;

    std::vector<Demand> demands;  // in router order, or ascending for a chunk
    uint32_t outstanding = 0;     // demands that are not done
    uint32_t missing = 0;         // demands whose expert is not resident
    uint64_t reveal_number = 0;   // counts reveals of all requests: who asked first

    // CoreState::idle when this request was first ready for a dense part that it is held from.
    std::optional<Duration> held_at_idle;

    bool prefilling() const { return position < prompt_tokens; }
    // Everything that the next dense part needs is computed or can be computed in the same step.
    bool ready() const {
        return phase == Phase::kEntry || (phase == Phase::kExperts && missing == 0);
    }
    bool waiting() const { return phase == Phase::kExperts && missing > 0; }
    bool lags_behind(const Sequence& other) const {
        return progress != other.progress ? progress < other.progress : request < other.request;
    }
};

}  // namespace bevy
