// What leaves the core: one decision at a time, to be performed before asking for the next.
#pragma once

#include <cstdint>
#include <variant>
#include <vector>

#include "base/ids.h"

namespace bevy {

// A queued request got a sequence. The engine remembers the pair until FinishRequest or
// cancellation.
struct AdmitRequest {
    RequestId request;
    SeqIndex seq;
    uint32_t tokens_reused = 0;  // of the prompt; they lie in the KV cache of the sequence already
};

// Bring `expert` into `slot`. ReadDone with this ticket follows.
struct StartRead {
    Ticket ticket;
    ExpertId expert;
    SlotIndex slot;
};

// Nobody needs this read any more. ReadDone still follows.
struct CancelRead {
    Ticket ticket;
};

struct StepUse {
    SeqIndex seq;
    ExpertIndex expert;
    SlotIndex slot;
};

// For stage 0: the run of tokens that a sequence computes next.
struct PassRange {
    uint32_t first_position = 0;
    uint32_t tokens = 0;
    bool wants_logits = false;
};

// Run one step (see compute/compute.h for stages). StepDone follows; no other step before.
struct StartStep {
    uint32_t stage = 0;
    std::vector<StepUse> uses;
    std::vector<SeqIndex> advancing;
    std::vector<PassRange> passes;  // stage 0 only, parallel to `advancing`
    // SequenceAdvanced::guesses will be looked at; else they need not be made.
    bool wants_guesses = false;
};

// The request can't go on because `expert` can't be read. Its sequence is free again.
struct FailRequest {
    RequestId request;
    ExpertId expert;
};

using Action = std::variant<AdmitRequest, StartRead, CancelRead, StartStep, FailRequest>;

}  // namespace bevy
