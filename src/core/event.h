// What enters the core: facts about the world, in the order in which the engine learned them.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/units.h"

namespace bevy {

// A request wants to run. It is queued until a sequence is free.
struct RequestArrived {
    RequestId request;
    uint32_t prompt_tokens = 0;  // at least 1
    // The prompt itself, if what others computed of it may be used, and what it computes be kept.
    // Else empty.
    std::vector<TokenId> prompt = {};
};

// The client gave up. Pins and unshared reads are released at once; FinishRequest is not emitted,
// the request is gone when handle() returns (its sequence is reused once no step holds it).
struct RequestCancelled {
    RequestId request;
};

// The engine took a token from the logits of a finished pass; with `last` the request ends instead
// of running another pass.
struct TokenSampled {
    RequestId request;
    bool last = false;
};

// One expert of a route. Rows: tokens of the pass that chose it.
struct ExpertDemand {
    ExpertIndex expert;
    uint32_t rows = 1;
};

// What a step did for one sequence that advanced. The route is in router order for one token,
// ascending for a chunk; it is empty after the head or when a pass without logits ended.
struct SequenceAdvanced {
    SeqIndex seq;
    std::span<const ExpertDemand> route;
    // What the routers of the following layers would choose from the same hidden state: for each of
    // CoreConfig::guessed_layers as many as a token uses, likeliest first. Empty for chunks, and
    // short near the last layer.
    std::span<const ExpertIndex> guesses = {};
};

struct StepDone {
    std::span<const SequenceAdvanced> sequences;  // parallel to StartStep::advancing
    Duration duration;
};

struct ReadDone {
    Ticket ticket;
    bool ok = true;
    Duration duration;  // from start to arrival
};

using Event = std::variant<RequestArrived, RequestCancelled, TokenSampled, StepDone, ReadDone>;

}  // namespace bevy
