// The core's counters. One sentence each; the same struct feeds the status line, reports and tests.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace bevy {

struct CoreStats {
    uint64_t requests_arrived = 0;    // RequestArrived events taken
    uint64_t requests_finished = 0;   // requests that ended with TokenSampled{last}
    uint64_t requests_cancelled = 0;  // requests that ended with RequestCancelled
    uint64_t requests_failed = 0;     // requests that ended with FailRequest
    uint64_t passes = 0;              // passes begun
    uint64_t passes_decode = 0;       // of those, passes of one generated token

    uint64_t expert_hits = 0;   // (request, expert) demands whose expert was resident when revealed
    uint64_t expert_joins = 0;  // demands whose expert was already being read
    uint64_t expert_misses = 0;      // demands whose expert was neither resident nor being read
    uint64_t expert_prefetched = 0;  // demands whose expert was there, or coming, for a guess alone

    uint64_t reads_started = 0;    // StartRead actions
    uint64_t reads_done = 0;       // reads that ended with the expert resident
    uint64_t reads_failed = 0;     // reads that ended with an error, cancelled ones not counted
    uint64_t reads_cancelled = 0;  // CancelRead actions
    uint64_t evictions = 0;        // experts that gave up their slot

    uint64_t guesses = 0;         // experts that a predictor expected at a layer since revealed
    uint64_t guesses_right = 0;   // of those, experts that were chosen
    uint64_t guesses_absent = 0;  // guesses of experts that were in no slot when last guessed
    uint64_t guesses_absent_right = 0;  // of those, experts that were chosen
    uint64_t prefetches = 0;            // StartRead actions for a guess
    uint64_t prefetches_useful = 0;     // of those, experts demanded before their guess was over

    uint64_t steps = 0;             // StartStep actions
    uint64_t step_sequences = 0;    // sum over steps of the sequences that advanced (group size)
    uint64_t step_experts = 0;      // sum over steps of distinct experts computed
    uint64_t step_expert_uses = 0;  // sum over steps of (sequence, expert) pairs computed
    uint64_t idle_steps = 0;  // steps that advanced nobody (compute would have idled otherwise)

    Duration compute_busy;  // time with a step in flight
    Duration link_busy;     // time with at least one read in flight
    Duration stall;         // time without a step in flight while some request waited for experts
};

}  // namespace bevy
