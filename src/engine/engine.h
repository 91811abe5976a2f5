// The engine: one event loop that connects the core (which decides), the link (which reads
// experts), the compute (which runs steps) and the samplers, and keeps the tokens of every request.
//
// It owns no thread and no clock: whoever calls step() is the engine thread, and time comes in
// through the constructor, so production and simulation run the same engine. Link, compute, clock
// and recorder outlive it.
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
#include "engine/generation.h"
#include "engine/mailbox.h"
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
    // Refuses a configuration that the core, the link or the context can't serve. `trace` may be
    // null.
    static Result<std::unique_ptr<Engine>> create(const EngineConfig& config, Link& link,
                                                  Compute& compute, const Clock& clock,
                                                  TraceRecorder* trace = nullptr);
    // The same with a core made by the caller, who knows it to match `config`.
    Engine(const EngineConfig& config, std::unique_ptr<Core> core, Link& link, Compute& compute,
           const Clock& clock, TraceRecorder* trace);
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
        Submission submission;
        std::vector<TokenId> tokens;  // prompt and generated
        uint32_t tokens_max = 0;      // when the request is full
        std::optional<SeqIndex> seq;  // once admitted
        bool pass_wants_logits = false;
        uint32_t pass_end = 0;  // position after the current pass
        RequestPhase phase = RequestPhase::kQueued;
        Instant phase_since;
        Instant admitted;
        std::optional<Instant> first_token;
        RequestTimings timings;
    };
    struct Finished {
        std::unique_ptr<Live> live;
        FinishReason reason;
        std::optional<Error> error;
    };
    struct Sampled {
        RequestId request;
        bool last = false;
    };
    struct SampleJob {
        RequestId request;
        uint64_t step = 0;  // number of the head step that made the logits
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
    void perform(const StartStep& action);
    void perform(const FailRequest& action);

    void step_succeeded(const StepResult& result);
    void step_failed(const Error& error);
    void pass_advanced(SeqIndex seq, bool ended);
    void tell_core_of_samples();
    void cancel_request(RequestId id, FinishReason reason, std::optional<Error> error);
    void finish(RequestId id, FinishReason reason, std::optional<Error> error);
    void enter_phase(Live& live, RequestPhase phase, Instant now);
    void count_active(Instant now);
    Live* find(RequestId id);
    Live* running(SeqIndex seq);

    const EngineConfig config_;
    std::unique_ptr<Core> core_;
    Link& link_;
    Compute& compute_;
    const Clock& clock_;
    TraceRecorder* const trace_;
    Mailbox mailbox_;

    std::map<RequestId, std::unique_ptr<Live>> live_;  // taken by the core, not yet ended
    std::vector<std::optional<RequestId>> sequences_;  // who runs where
    std::deque<SampleJob> to_sample_;
    std::vector<Sampled> sampled_;           // of one head step; told to the core together
    std::vector<Finished> finished_;         // on_finish() is due
    std::map<ExpertId, Error> read_errors_;  // the last attempt to read it failed

    struct ReadInFlight {
        ExpertId expert;
        SlotIndex slot;
    };
    std::vector<ReadInFlight> reads_;  // by ticket
    std::vector<LinkCompletion> completions_;
    struct StepInFlight {
        uint32_t stage = 0;
        uint64_t number = 0;
        uint32_t experts = 0;
        uint32_t uses = 0;
        std::vector<SeqIndex> advancing;
    };
    std::optional<StepInFlight> step_;
    uint64_t steps_started_ = 0;

    EngineStats stats_;
    Instant made_;
    std::optional<Instant> active_since_;
    bool core_changed_ = false;  // phases may have changed
};

}  // namespace bevy
