// One experiment: the shipped engine and core serve requests with given routes on a simulated
// machine, and what they did in a window of tokens is measured.
//
// Without arrivals the machine is saturated: as many requests wait as can run, so a request that
// ends is replaced at once. Everything happens on virtual time, in one thread, and follows from the
// options: the same options give the same result, bit for bit.
#pragma once

#include <cstdint>
#include <functional>

#include "base/error.h"
#include "base/route_trace.h"
#include "base/units.h"
#include "core/config.h"
#include "engine/stats.h"
#include "sim/hardware_profile.h"
#include "sim/model_profile.h"

namespace bevy {

struct ExperimentOptions {
    HardwareProfile hardware;
    ModelProfile model;
    // Policies and their settings; shape, slots and limits are filled in from the other options.
    CoreConfig core;
    uint32_t slots = 0;
    uint32_t parallel = 1;          // requests that run at once
    uint64_t seed = 1;              // for the order of requests, and for arrivals
    uint64_t tokens_warmup = 1500;  // generated before the window
    uint64_t tokens_measured = 3000;
    uint32_t drop_tokens = 0;         // at the beginning of every request of the trace
    uint32_t prompt_tokens = 1;       // of a request's tokens, so many are its prompt
    uint32_t request_tokens_max = 0;  // prompt and reply; 0: as in the trace
    // How often a router that is asked early is right (see ReplayCompute), in percent.
    uint32_t guess_right_resident = 80;
    uint32_t guess_right_missing = 60;
    // Mean time from one arrival to the next (a Poisson process); zero: saturated.
    Duration arrival_gap;
    // Asked now and then; false ends the experiment with kCancelled. May be empty.
    std::function<bool()> keep_going;
};

struct ExperimentResult {
    // The window: from one token to another.
    Duration window;
    uint64_t tokens = 0;  // generated in it
    EngineStats stats;    // of it
    Duration link_busy;   // part of it in which bytes came over the link, latencies left out

    double tokens_per_second() const;
    double misses_per_token() const;
    double reads_per_token() const;
    double link_utilisation() const;
    double compute_utilisation() const;
    double stall_share() const;  // part of the window without a step while a request waited

    // From one token of a request to its next one.
    Duration token_latency_p50;
    Duration token_latency_p99;
    // Of the requests that ended in the window: from their arrival until they were admitted, and
    // from then until their first token.
    Duration queued_p50;
    Duration queued_p99;
    Duration prefill_p50;
    Duration prefill_p99;
    uint64_t requests_refused = 0;  // arrivals that found the queue full, of the whole run
    // Tokens of the places at which requests run: (most - least) / mean. Zero with arrivals, where
    // places are not always taken.
    double fairness_spread = 0;
    // Over every step, read and token of the whole run, with their times.
    uint64_t hash = 0;

    // For bound_tokens_per_second().
    Duration merged_compute_per_token;  // if all requests always shared every step
    Duration transfer;                  // of one expert
};

// Errors: kUnsupported (a trace that is not one of this model), those of Engine::create(),
// kCancelled, kInvalidArgument (requests stopped making progress).
Result<ExperimentResult> run_experiment(const ExperimentOptions& options, const RouteTrace& trace);

// What no schedule can exceed by much: the processor can't do less than when all requests share
// every step, and the link can't do less than in `lockstep`, a run of lockstep under the same
// options.
double bound_tokens_per_second(const ExperimentResult& run, const ExperimentResult& lockstep);

}  // namespace bevy
