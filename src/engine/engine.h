// The engine: one event loop that connects the core (which decides), the link (which reads
// experts), the compute (which runs steps) and the samplers, and keeps the tokens of every request.
//
// It owns no thread and no clock: whoever calls step() is the engine thread, and time comes in
// through the constructor, so production and simulation run the same engine. Link, compute, clock
// and recorders outlive it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/ids.h"
#include "compute/compute.h"
#include "core/core.h"
#include "core/eviction/eviction.h"
#include "engine/generation.h"
#include "engine/mailbox.h"
#include "engine/route_recorder.h"
#include "engine/stats.h"
#include "engine/trace_recorder.h"
#include "storage/link.h"

namespace bevy {

struct EngineConfig {
    CoreConfig core;
    uint32_t context_per_sequence = 0;  // tokens, prompt and generated together
    uint32_t vocabulary = 0;            // token ids are 0 .. vocabulary-1
    uint32_t mailbox_max = 256;         // submitted requests that the core has not taken yet
};

class Engine {
public:
    // Refuses a configuration that the core, the link or the context can't serve. `trace` and
    // `routes` may be null; `parts` replaces what the names in the configuration would give.
    static Result<std::unique_ptr<Engine>> create(const EngineConfig& config, Link& link,
                                                  Compute& compute, const Clock& clock,
                                                  TraceRecorder* trace = nullptr,
                                                  RouteRecorder* routes = nullptr,
                                                  CoreParts parts = {});
    // The same with a core made by the caller, who knows it to match `config`.
    Engine(const EngineConfig& config, std::unique_ptr<Core> core, Link& link, Compute& compute,
           const Clock& clock, TraceRecorder* trace, RouteRecorder* routes = nullptr);
    // REQUIRES: done(), or that step() was never called.
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    // Any thread. Refuses what can't be served, with both numbers: an empty or too long prompt
    // (kInvalidArgument, kBudget), a full queue (kQueueFull), a stopping engine (kCancelled).
    // Otherwise the sink hears of it, exactly one on_finish() included.
    Result<RequestId> submit(GenerationRequest request);
    // Any thread. The sink still gets its on_finish(). False: no such request is alive.
    bool cancel(RequestId id) { return mailbox_.cancel(id); }
    // Any thread. See Mailbox.
    void close() { mailbox_.close(); }
    void wait_until_empty() { mailbox_.wait_until_empty(); }
    void stop() { mailbox_.stop(); }

    // The rest: engine thread.

    // One turn of the event loop; sleeps in the link when there is nothing to do.
    void step();
    // stop() was called, every request has ended, and nothing is in flight.
    bool done() const;
    EngineSnapshot snapshot() const;
    const Core& core() const { return *core_; }

private:
    // A request from its arrival at the core until its on_finish().
    struct Live {
        Live(Submission submission, uint32_t context);

        RequestId id;
        GenerationRequest request;    // without the prompt, which is in `tokens`
        std::vector<TokenId> tokens;  // prompt and generated
        uint32_t tokens_max = 0;      // when the request is full
        std::optional<SeqIndex> seq;  // once admitted
        // Of the current pass.
        uint32_t pass_first = 0;
        uint32_t pass_end = 0;
        bool pass_wants_logits = false;
        // For the timings and the timeline.
        RequestPhase phase = RequestPhase::kQueued;
        uint64_t phase_step = 0;  // number of the step while computing
        Instant phase_since;
        Instant submitted;
        std::optional<Instant> first_token;
        RequestTimings timings;
    };
    struct Finished {
        std::unique_ptr<Live> live;
        FinishReason reason;
        std::optional<Error> error;
    };
    struct SampleJob {
        RequestId request;
        SeqIndex seq;
        uint64_t step = 0;  // number of the head step that made the logits
    };
    struct Sampled {
        RequestId request;
        bool last = false;
        FinishReason reason;  // if last
    };
    struct ReadInFlight {
        ExpertId expert;
        SlotIndex slot;
    };
    struct StepInFlight {
        uint32_t stage = 0;
        uint64_t number = 0;
        uint32_t experts = 0;
        uint32_t uses = 0;
        std::vector<SeqIndex> advancing;
    };

    // The stages of step(). True: something happened.
    bool take_requests();
    bool take_cancellations();
    bool reap_reads();
    bool reap_step();
    bool sample();
    bool perform_actions();
    void note_phases();
    bool emit();
    void wait();

    void perform(const AdmitRequest& action);
    void perform(const StartRead& action);
    void perform(const CancelRead& action);
    void perform(StartStep& action);
    void perform(const FailRequest& action);

    PassInput begin_pass(SeqIndex seq, const PassRange& range);
    void fail_running(const Error& error);
    void tell_core_of_step(const StepInFlight& step, const StepResult& result);
    void note_advance(const StepInFlight& step, SeqIndex seq);
    void record_route(uint32_t stage, const SeqResult& result);
    void sample(const SampleJob& job);
    void tell_core_of_samples();

    // What the engine keeps about requests (engine_requests.cc).
    Live* find(RequestId id);
    Live* running(SeqIndex seq);
    // Its last token is sampled: it ends by itself in this or one of the next turns.
    bool sampled_last(RequestId id) const;
    void cancel_request(RequestId id, FinishReason reason, std::optional<Error> error);
    void finish(RequestId id, FinishReason reason, std::optional<Error> error);
    // Ends a request that the core never heard of.
    void turn_away(Submission submission);
    void note_first_token(Live& live, Instant now);
    void enter_phase(Live& live, RequestPhase phase, Instant now);
    // Books the time since the last call on the current phase.
    void book_phase(Live& live, Instant now);
    void count_active(Instant now);

    const EngineConfig config_;
    std::unique_ptr<Core> core_;
    Link& link_;
    Compute& compute_;
    const Clock& clock_;
    TraceRecorder* const trace_;
    RouteRecorder* const routes_;
    Mailbox mailbox_;

    std::map<RequestId, std::unique_ptr<Live>> live_;  // taken by the core, not yet ended
    std::vector<std::optional<RequestId>> sequences_;  // who runs where
    std::deque<SampleJob> to_sample_;
    std::vector<Sampled> sampled_;  // of one head step; told to the core together
    uint64_t sampled_step_ = 0;
    std::vector<Finished> finished_;         // on_finish() is due
    std::map<ExpertId, Error> read_errors_;  // the last attempt to read it failed
    std::vector<ReadInFlight> reads_;        // by ticket
    std::optional<StepInFlight> step_;
    uint64_t steps_started_ = 0;

    // Reused by every turn.
    std::vector<LinkCompletion> completions_;
    std::vector<ExpertDemand> demands_;
    std::vector<SequenceAdvanced> advanced_;

    EngineStats stats_;
    Instant made_;
    std::optional<Instant> active_since_;
    bool core_changed_ = false;  // phases may have changed
};

}  // namespace bevy
