// The core: the pure state machine that decides what is read, what is computed, and for whom.
//
// Contract: handle() takes one fact, next() gives one decision at a time until it has none; the caller
// performs each decision before asking again. Time is an argument. No threads, clocks, files or floating
// point, and the same events give the same decisions on every machine. One thread at a time.
//
// A request's life: queued -> admitted to a sequence -> prefill passes -> one decode pass per token. The
// engine ends it with TokenSampled{last}, or RequestCancelled; the core ends it with FailRequest.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "base/ids.h"
#include "base/units.h"
#include "core/action.h"
#include "core/event.h"
#include "core/stats.h"

namespace bevy {

struct CoreConfig {
    uint32_t moe_layers = 0;
    uint32_t experts_per_layer = 0;
    uint32_t experts_used = 0;  // per token and layer
    bool last_layer_is_moe = true;
    uint32_t slots = 0;
    uint32_t sequences = 0;           // requests that run at once
    uint32_t queue_max = 0;           // requests that may wait for a sequence
    uint32_t reads_inflight_max = 4;  // tickets are 0 .. max-1
    uint32_t chunk_tokens = 256;      // prefill passes are cut at multiples of this position
    uint32_t prefill_sequences = 0;   // sequences that may run a pass of more than one token at once
    uint64_t expert_bytes = 0;        // of one expert, for cost estimates
    std::vector<uint64_t> dense_bytes;  // per stage 0 .. moe_layers, for cost estimates
    std::string_view policy = "bevy";
    std::string_view eviction = "two-rate";
};

class Core {
public:
    // Refuses (kInvalidArgument, kUnsupported, kBudget) what can't work: fewer slots than experts per
    // token, no sequences, unknown policy names.
    static Result<std::unique_ptr<Core>> create(const CoreConfig& config);
    virtual ~Core() = default;

    // False: the queue is full, RequestArrived must not be sent now.
    virtual bool can_queue() const = 0;
    virtual void handle(const Event& event, Instant now) = 0;
    virtual std::optional<Action> next(Instant now) = 0;
    // When next() may have a new decision without a new event (a bounded hold that ends); nothing if never.
    virtual std::optional<Instant> next_deadline() const = 0;
    // True when no request is queued or running and nothing is in flight.
    virtual bool idle() const = 0;
    virtual const CoreStats& stats() const = 0;
    // What a request waits for or does now, for progress displays. Nothing if it is not known.
    struct Progress {
        bool queued = false;
        uint32_t position = 0;  // tokens whose pass is complete
        uint32_t stage = 0;
        uint32_t missing_experts = 0;
    };
    virtual std::optional<Progress> progress(RequestId request) const = 0;
    // Aborts when an invariant is broken. Slow; for tests and idle times.
    virtual void check_invariants() const = 0;
};

}  // namespace bevy
