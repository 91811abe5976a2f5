// What a router has just chosen for one request: the fact that eviction policies and predictors
// learn from.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "core/event.h"

namespace bevy {

struct Reveal {
    SeqIndex seq;
    LayerIndex layer;
    std::span<const ExpertDemand> used;  // distinct experts, in router order for one token
    uint32_t tokens = 1;                 // of the pass: 1 in decode
    uint32_t running = 1;                // requests that run, this one included
    // What the following layers' routers say to the same hidden state (SequenceAdvanced::guesses).
    std::span<const ExpertIndex> guesses = {};
};

}  // namespace bevy
