// What the engine counts and measures beyond the core, and how it is shown. One sentence per
// number; the status line, reports, benchmarks and the simulator print this one struct.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "core/stats.h"

namespace bevy {

struct EngineStats {
    CoreStats core;

    uint64_t link_bytes = 0;        // read from the slow tier, including widening to disk blocks
    uint64_t tokens_prompt = 0;     // prompt tokens whose pass is complete
    uint64_t tokens_reused = 0;     // prompt tokens that an earlier request had computed
    uint64_t tokens_generated = 0;  // tokens sampled
    uint64_t steps_failed = 0;      // steps that the backend gave up
    Duration wall;                  // since the engine was made
    Duration active;                // of that, with a request, a step or a read under way
    Duration sampling;              // spent in samplers and token sinks by the engine thread
    // [n]: steps that advanced n sequences; [0] are those that only computed experts ahead.
    std::vector<uint64_t> group_sizes;

    // Part of the active time with a step in flight, 0 .. 1.
    double compute_utilisation() const;
    // Part of the active time with a read in flight, 0 .. 1.
    double link_utilisation() const;
    // Part of the active time in which nothing was computed because experts were missing, 0 .. 1.
    double stall_share() const;
    // Part of the demands whose expert was resident when the router chose it, 0 .. 1.
    double hit_rate() const;
    // Of the prefetches, those whose expert was demanded before its guess was over; and of the
    // experts that would have been missing, those that a prefetch had brought.
    double prefetch_precision() const;
    double prefetch_recall() const;
    // Sequences per step that advanced any.
    double group_size_mean() const;
    // Generated tokens per second of active time.
    double tokens_per_second() const;
    // Bytes per second while a read was in flight.
    double link_bytes_per_second() const;
    // Link bytes per token, prompt tokens included.
    double link_bytes_per_token() const;

    // What happened after `earlier`, a copy of the same engine's stats.
    EngineStats since(const EngineStats& earlier) const;
};

struct StatRow {
    std::string name;
    std::string value;
};

// Every number above as a line of a table, in the order of the data flow.
std::vector<StatRow> stat_rows(const EngineStats& stats);

// What a running request does at the moment.
enum class RequestPhase : uint8_t {
    kQueued,     // no sequence is free
    kWaiting,    // an expert that it needs is still missing
    kReady,      // could compute; other requests do, or its token is being sampled
    kComputing,  // a step that advances it is running
};

// "queued", "waiting", "ready", "computing".
const char* request_phase_name(RequestPhase phase);

// One line of the live view.
struct RequestProgress {
    RequestId request;
    std::optional<SeqIndex> seq;  // where it runs; nothing: it waits
    RequestPhase phase = RequestPhase::kQueued;
    bool prefill = true;  // no token generated yet
    uint32_t tokens_prompt = 0;
    uint32_t tokens_reused = 0;  // of the prompt
    uint32_t tokens_generated = 0;
    uint32_t position = 0;  // tokens whose pass is complete
    uint32_t stage = 0;     // of the current pass
    uint32_t missing_experts = 0;
};

// A copy of everything at one moment.
struct EngineSnapshot {
    EngineStats stats;
    std::vector<RequestProgress> requests;  // by request id
    std::vector<uint32_t> resident;         // experts in memory, by MoE layer
    uint32_t experts_per_layer = 0;
};

}  // namespace bevy
