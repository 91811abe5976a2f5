// The core: the pure state machine that decides what is read, what is computed, and for whom.
//
// Contract: handle() takes one fact, next() gives one decision at a time until it has none; the
// caller performs each decision before asking again. Time is an argument. No threads, clocks, files
// or floating point, and the same events give the same decisions on every machine. One thread at a
// time.
//
// A request's life: queued -> admitted to a sequence -> prefill passes -> one decode pass per
// token. The engine ends it with TokenSampled{last}, or RequestCancelled; the core ends it with
// FailRequest.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "base/units.h"
#include "core/action.h"
#include "core/config.h"
#include "core/event.h"
#include "core/stats.h"

namespace bevy {

class EvictionPolicy;
class FetchPlanner;
class Predictor;
class KeptPrefixes;
class Prefetcher;
class SchedulePolicy;
struct CoreState;
struct Sequence;

// Parts that a simulation brings along instead of naming them, because they know the future. Null:
// what the config names.
struct CoreParts {
    std::unique_ptr<EvictionPolicy> eviction;
};

class Core {
public:
    // Refuses (kInvalidArgument, kUnsupported, kBudget) what can't work: fewer slots than experts
    // per token, no sequences, unknown policy names, predictors that nobody feeds.
    static Result<std::unique_ptr<Core>> create(const CoreConfig& config);
    static Result<std::unique_ptr<Core>> create(const CoreConfig& config, CoreParts parts);
    ~Core();

    // False: the queue is full, RequestArrived must not be sent now.
    bool can_queue() const;
    void handle(const Event& event, Instant now);
    std::optional<Action> next(Instant now);
    // When next() may have a new decision without a new event (a bounded hold that ends); nothing
    // if never.
    std::optional<Instant> next_deadline() const { return ask_again_; }
    // True when no request is queued or running and nothing is in flight.
    bool idle() const;
    const CoreStats& stats() const { return stats_; }
    const CoreState& state() const { return *state_; }

    // What a request waits for or does now, for progress displays. Nothing if it is not known.
    struct Progress {
        bool queued = false;
        uint32_t position = 0;  // tokens whose pass is complete
        uint32_t stage = 0;     // the next one, or the one in flight
        uint32_t missing_experts = 0;
    };
    std::optional<Progress> progress(RequestId request) const;
    // How many experts of each MoE layer are resident, for displays.
    std::vector<uint32_t> resident_by_layer() const;

    // Aborts when an invariant is broken. Slow; for tests and idle times.
    void check_invariants() const;

private:
    Core(const CoreConfig& config, std::unique_ptr<FetchPlanner> planner);

    void on(const RequestArrived& event);
    void on(const RequestCancelled& event);
    void on(const TokenSampled& event);
    void on(const StepDone& event);
    void on(const ReadDone& event);

    std::optional<Action> next_admission();
    std::optional<Action> next_cancel();
    std::optional<Action> next_read(Instant now);
    std::optional<Action> next_step(Instant now);

    // Brings the time counters up to `now`.
    void account(Instant now);
    SeqIndex index_of(const Sequence& s) const;
    Sequence* find(RequestId request);
    // Ends the request of `s` outside of its own course: releases what it holds, now or when the
    // step in flight is done.
    void abandon(Sequence& s);
    void free_sequence(Sequence& s);
    void release_demands(Sequence& s, bool running_too);
    void finish_uses(const StartStep& step);
    void advance(Sequence& s, const StartStep& step, const SequenceAdvanced& result);
    void end_pass(Sequence& s, bool logits);
    // Remembers the pass that has just ended, if a later prompt may use it.
    void keep_pass(const Sequence& s);
    void reveal(Sequence& s, uint32_t layer, const SequenceAdvanced& result);
    // Counts what became of the demand, and enters it.
    void demand(Sequence& s, const ExpertDemand& chosen, ExpertId expert);
    bool read_is_cancelled(ExpertId expert) const;
    // The smallest progress of the other running requests, rounded up to a token boundary.
    uint64_t aligned_progress(const Sequence& newcomer) const;
    uint32_t running() const;

    std::unique_ptr<CoreState> state_;
    std::unique_ptr<EvictionPolicy> eviction_;
    std::unique_ptr<SchedulePolicy> policy_;
    std::unique_ptr<FetchPlanner> planner_;
    std::unique_ptr<Prefetcher> prefetcher_;  // null: none
    std::unique_ptr<KeptPrefixes> kept_;
    std::vector<RequestArrived> queue_;  // first come, first served
    std::vector<FailRequest> failures_;  // to be emitted
    std::optional<Instant> ask_again_;
    Instant now_;
    CoreStats stats_;
    uint64_t reveals_ = 0;
};

}  // namespace bevy
