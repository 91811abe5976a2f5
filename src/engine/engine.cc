#include "engine/engine.h"

#include <algorithm>
#include <string>
#include <utility>
#include <variant>

#include "base/assert.h"

namespace bevy {

namespace {

// How long the engine sleeps when it expects nothing. Everything that can happen wakes the link, so
// this only bounds what a lost wake-up would cost.
constexpr Duration kWaitMax = milliseconds(500);

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(const EngineConfig& config, Link& link,
                                               Compute& compute, const Clock& clock,
                                               TraceRecorder* trace, RouteRecorder* routes,
                                               CoreParts parts) {
    if (config.context_per_sequence < 2)
        return fail(ErrorCode::kInvalidArgument,
                    "a context of " + std::to_string(config.context_per_sequence) +
                        " tokens per sequence holds no prompt and reply",
                    "use at least 2 tokens, usually thousands");
    if (config.mailbox_max == 0)
        return fail(ErrorCode::kInvalidArgument, "the queue of waiting requests has no room");
    if (config.core.reads_inflight_max > link.transfers_inflight_max())
        return fail(ErrorCode::kInvalidArgument, std::to_string(config.core.reads_inflight_max) +
                                                     " reads in flight are more than the " +
                                                     std::to_string(link.transfers_inflight_max()) +
                                                     " that the link can do");
    Result<std::unique_ptr<Core>> core = Core::create(config.core, std::move(parts));
    if (!core)
        return std::unexpected(std::move(core.error()));
    return std::make_unique<Engine>(config, std::move(*core), link, compute, clock, trace, routes);
}

Engine::Engine(const EngineConfig& config, std::unique_ptr<Core> core, Link& link, Compute& compute,
               const Clock& clock, TraceRecorder* trace, RouteRecorder* routes)
    : config_(config),
      core_(std::move(core)),
      link_(link),
      compute_(compute),
      clock_(clock),
      trace_(trace),
      routes_(routes),
      mailbox_(config.mailbox_max, link, clock),
      sequences_(config.core.sequences),
      reads_(config.core.reads_inflight_max),
      completions_(config.core.reads_inflight_max),
      made_(clock.now()) {
    BEVY_ASSERT(config.context_per_sequence >= 2);
    BEVY_ASSERT(config.core.reads_inflight_max <= link.transfers_inflight_max());
    stats_.group_sizes.resize(config.core.sequences + 1);
}

Engine::~Engine() {
    BEVY_ASSERT(live_.empty() && finished_.empty());
    BEVY_ASSERT(core_->idle());
}

Result<RequestId> Engine::submit(GenerationRequest request) {
    BEVY_ASSERT(request.sampler != nullptr && request.sink != nullptr);
    const size_t prompt = request.prompt.size();
    const uint32_t context = config_.context_per_sequence;
    if (prompt == 0)
        return fail(ErrorCode::kInvalidArgument, "the prompt has no tokens",
                    "a model without a begin-of-text token needs at least one character");
    if (prompt >= context)
        return fail(ErrorCode::kBudget,
                    "the prompt has " + std::to_string(prompt) + " tokens, but a context of " +
                        std::to_string(context) + " tokens leaves room for " +
                        std::to_string(context - 1),
                    "shorten the prompt, or start with a larger context");
    if (request.max_tokens == 0)
        return fail(ErrorCode::kInvalidArgument, "no tokens to generate were asked for",
                    "ask for at least one");
    for (TokenId token : request.prompt) {
        if (token < 0 || static_cast<uint32_t>(token) >= config_.vocabulary)
            return fail(ErrorCode::kInvalidArgument,
                        "token " + std::to_string(token) + " of the prompt is not one of the " +
                            std::to_string(config_.vocabulary) + " of the vocabulary");
    }
    return mailbox_.submit(std::move(request));
}

void Engine::step() {
    bool busy = false;
    // Arrivals first, so that a newcomer can be in the group that starts now.
    busy |= take_requests();
    // Before any work is started for somebody who has gone.
    busy |= take_cancellations();
    // Experts that have arrived may complete a group.
    busy |= reap_reads();
    // The finished step tells which experts its sequences need next.
    busy |= reap_step();
    // One token per turn: a slow sampler must not keep reads from being reaped and issued.
    busy |= sample();
    // Everything is known now: let the core decide, and do it.
    busy |= perform_actions();
    // For the timeline and the timings of the requests; after the actions, which change it.
    note_phases();
    // The rest of the world hears of endings last, while compute and link already work.
    busy |= emit();
    // Nothing new: sleep until the link, the compute or the mailbox wakes us.
    if (!busy)
        wait();
}

bool Engine::done() const {
    return mailbox_.stopping() && live_.empty() && finished_.empty() && core_->idle();
}

bool Engine::take_requests() {
    bool any = false;
    while (core_->can_queue()) {
        std::optional<Submission> submission = mailbox_.take_request();
        if (!submission)
            break;
        any = true;
        auto live = std::make_unique<Live>(std::move(*submission), config_.context_per_sequence);
        const RequestId id = live->id;
        const Instant now = clock_.now();
        if (trace_)
            trace_->request_arrived(id, live->timings.tokens_prompt, live->submitted);
        RequestArrived arrived{id, live->timings.tokens_prompt};
        if (live->request.reuse_prompt)
            arrived.prompt = live->tokens;
        core_->handle(arrived, now);
        live_.emplace(id, std::move(live));
        count_active(now);
        core_changed_ = true;
    }
    return any;
}

bool Engine::take_cancellations() {
    std::vector<RequestId> cancelled = mailbox_.take_cancellations();
    if (mailbox_.stopping()) {
        for (const auto& [id, live] : live_)
            cancelled.push_back(id);
        while (std::optional<Submission> submission = mailbox_.take_request())
            turn_away(std::move(*submission));
    }
    for (RequestId id : cancelled) {
        if (std::optional<Submission> submission = mailbox_.withdraw(id))
            turn_away(std::move(*submission));
        else if (find(id) && !sampled_last(id))
            cancel_request(id, FinishReason::kCancelled, std::nullopt);
    }
    return !cancelled.empty();
}

bool Engine::reap_reads() {
    const size_t count = link_.poll(completions_);
    for (size_t i = 0; i < count; i++) {
        LinkCompletion& completion = completions_[i];
        const ReadInFlight read = reads_[completion.ticket.value];
        const bool ok = !completion.error;
        stats_.link_bytes += completion.bytes_read;
        if (ok)
            read_errors_.erase(read.expert);
        else
            read_errors_.insert_or_assign(read.expert, std::move(*completion.error));
        if (trace_)
            trace_->read({.ticket = completion.ticket,
                          .expert = read.expert,
                          .layer = LayerIndex(read.expert.value / config_.core.experts_per_layer),
                          .slot = read.slot,
                          .bytes = completion.bytes_read,
                          .ok = ok,
                          .started = completion.started,
                          .finished = completion.finished});
        core_->handle(ReadDone{completion.ticket, ok, completion.finished - completion.started},
                      clock_.now());
    }
    core_changed_ |= count > 0;
    return count > 0;
}

bool Engine::reap_step() {
    if (!step_)
        return false;
    const std::optional<StepResult> result = compute_.poll();
    if (!result)
        return false;
    // Taken out first: what follows may end requests, which asks who is in a step.
    const StepInFlight step = std::move(*std::exchange(step_, std::nullopt));
    if (trace_)
        trace_->step({.stage = step.stage,
                      .sequences = static_cast<uint32_t>(step.advancing.size()),
                      .experts = step.experts,
                      .uses = step.uses,
                      .started = result->started,
                      .finished = result->finished});
    if (result->error)
        fail_running(*result->error);
    tell_core_of_step(step, *result);
    core_changed_ = true;
    return true;
}

void Engine::fail_running(const Error& error) {
    stats_.steps_failed++;
    for (const std::optional<RequestId>& id : std::vector(sequences_)) {
        if (id && !sampled_last(*id))
            cancel_request(*id, FinishReason::kError, error);
    }
}

void Engine::tell_core_of_step(const StepInFlight& step, const StepResult& result) {
    BEVY_ASSERT(result.error || result.results.size() == step.advancing.size());
    size_t demands_count = 0;
    for (const SeqResult& sequence : result.results)
        demands_count += sequence.route.size();
    demands_.clear();
    demands_.reserve(demands_count);  // the spans below must not move
    advanced_.clear();
    for (size_t i = 0; i < step.advancing.size(); i++) {
        const size_t first = demands_.size();
        if (!result.error) {
            BEVY_ASSERT(result.results[i].seq == step.advancing[i]);
            for (const RoutedExpert& routed : result.results[i].route)
                demands_.push_back({routed.expert, routed.rows});
            if (routes_)
                record_route(step.stage, result.results[i]);
        }
        advanced_.push_back(
            {.seq = step.advancing[i], .route = std::span(demands_).subspan(first)});
        if (!result.error)
            advanced_.back().guesses = result.results[i].guesses;
        note_advance(step, step.advancing[i]);
    }
    core_->handle(StepDone{advanced_, result.finished - result.started}, clock_.now());
}

void Engine::note_advance(const StepInFlight& step, SeqIndex seq) {
    Live* live = running(seq);
    if (!live)
        return;  // it was cancelled while the step ran
    const uint32_t head = config_.core.moe_layers;
    const uint32_t last =
        live->pass_wants_logits || !config_.core.last_layer_is_moe ? head : head - 1;
    if (step.stage != last)
        return;
    const uint32_t prompt = live->timings.tokens_prompt;
    stats_.tokens_prompt += std::min(live->pass_end, prompt) - std::min(live->pass_first, prompt);
    if (live->pass_wants_logits)
        to_sample_.push_back({live->id, seq, step.number});
}

void Engine::record_route(uint32_t stage, const SeqResult& result) {
    const Live* live = running(result.seq);
    const bool generated = live && live->pass_first >= live->timings.tokens_prompt;
    if (generated && !result.route.empty())
        routes_->route(live->id, LayerIndex(stage), result.route);
}

bool Engine::sample() {
    const bool any = !to_sample_.empty();
    if (any) {
        const SampleJob job = to_sample_.front();
        to_sample_.pop_front();
        sample(job);
    }
    // The requests that left the head together go on together: told one by one, the core would
    // start the next step with the first of them alone.
    const bool together =
        !sampled_.empty() && (to_sample_.empty() || to_sample_.front().step != sampled_step_);
    if (together)
        tell_core_of_samples();
    return any || together;
}

void Engine::sample(const SampleJob& job) {
    Live& live = *find(job.request);
    const Instant before = clock_.now();
    const TokenId token = live.request.sampler->sample(compute_.logits(job.seq));
    live.tokens.push_back(token);
    live.timings.tokens_generated++;
    stats_.tokens_generated++;
    if (!live.first_token)
        note_first_token(live, before);
    const bool more = live.request.sink->on_token(token);
    const bool full = live.tokens.size() >= live.tokens_max;
    sampled_step_ = job.step;
    sampled_.push_back(
        {job.request, !more || full, more ? FinishReason::kLength : FinishReason::kStop});
    stats_.sampling += clock_.now() - before;
}

void Engine::tell_core_of_samples() {
    for (const Sampled& sampled : std::exchange(sampled_, {})) {
        core_->handle(TokenSampled{sampled.request, sampled.last}, clock_.now());
        if (sampled.last)
            finish(sampled.request, sampled.reason, std::nullopt);
    }
    core_changed_ = true;
}

bool Engine::perform_actions() {
    bool any = false;
    while (std::optional<Action> action = core_->next(clock_.now())) {
        std::visit([&](auto& a) { perform(a); }, *action);
        any = true;
    }
    core_changed_ |= any;
    return any;
}

void Engine::perform(const AdmitRequest& action) {
    Live* live = find(action.request);
    BEVY_ASSERT(live && !live->seq && !sequences_[action.seq.value]);
    sequences_[action.seq.value] = action.request;
    live->seq = action.seq;
    live->timings.tokens_reused = action.tokens_reused;
    stats_.tokens_reused += action.tokens_reused;
    live->request.sink->on_start(action.tokens_reused);
    const Instant now = clock_.now();
    live->timings.queued = now - live->submitted;
    enter_phase(*live, RequestPhase::kReady, now);
    if (trace_)
        trace_->request_begin(live->id, "prefill", now);
}

void Engine::perform(const StartRead& action) {
    reads_[action.ticket.value] = {action.expert, action.slot};
    link_.start(action.ticket, action.expert, action.slot);
}

void Engine::perform(const CancelRead& action) {
    link_.cancel(action.ticket);
}

void Engine::perform(StartStep& action) {
    BEVY_ASSERT(!step_);
    BEVY_ASSERT(action.passes.size() == (action.stage == 0 ? action.advancing.size() : 0));
    ComputeStep step{.stage = action.stage, .wants_guesses = action.wants_guesses};
    step_ = {.stage = action.stage, .number = ++steps_started_};
    step.uses.reserve(action.uses.size());
    for (const StepUse& use : action.uses) {
        if (step.uses.empty() || step.uses.back().expert != use.expert)
            step_->experts++;
        step.uses.push_back({use.seq, use.expert, use.slot});
    }
    step_->uses = static_cast<uint32_t>(step.uses.size());
    for (size_t i = 0; i < action.passes.size(); i++)
        step.passes.push_back(begin_pass(action.advancing[i], action.passes[i]));
    stats_.group_sizes[action.advancing.size()]++;
    step.advancing = action.advancing;
    step_->advancing = std::move(action.advancing);
    compute_.start(std::move(step));
}

PassInput Engine::begin_pass(SeqIndex seq, const PassRange& range) {
    Live* live = running(seq);
    BEVY_ASSERT(live != nullptr);
    BEVY_ASSERT(range.tokens > 0 && range.first_position + range.tokens <= live->tokens.size());
    live->pass_first = range.first_position;
    live->pass_end = range.first_position + range.tokens;
    live->pass_wants_logits = range.wants_logits;
    const auto first = live->tokens.begin() + range.first_position;
    return {.seq = seq,
            .tokens = std::vector<TokenId>(first, first + range.tokens),
            .first_position = range.first_position,
            .wants_logits = range.wants_logits};
}

void Engine::perform(const FailRequest& action) {
    if (!find(action.request))
        return;  // it has ended in the same turn for another reason
    auto error = read_errors_.find(action.expert);
    if (error != read_errors_.end()) {
        finish(action.request, FinishReason::kError, error->second);
        return;
    }
    finish(action.request, FinishReason::kError,
           Error{ErrorCode::kIo,
                 "expert " + std::to_string(action.expert.value) + " could not be read",
                 {}});
}

bool Engine::emit() {
    const bool any = !finished_.empty();
    for (Finished& finished : std::exchange(finished_, {})) {
        const RequestId id = finished.live->id;
        finished.live->request.sink->on_finish(finished.reason, finished.live->timings,
                                               std::move(finished.error));
        mailbox_.finished(id);
    }
    return any;
}

void Engine::wait() {
    Duration timeout = kWaitMax;
    if (std::optional<Instant> deadline = core_->next_deadline())
        timeout = std::clamp(*deadline - clock_.now(), Duration{0}, kWaitMax);
    link_.wait(timeout);
}

}  // namespace bevy
