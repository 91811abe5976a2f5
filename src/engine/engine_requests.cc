// What the engine keeps about its requests: who runs where, how they end, where their time goes.
#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "engine/engine.h"

namespace bevy {

Engine::Live::Live(Submission submission, uint32_t context)
    : id(submission.id),
      request(std::move(submission.request)),
      tokens(std::exchange(request.prompt, {})),
      phase_since(submission.submitted),
      submitted(submission.submitted) {
    timings.tokens_prompt = static_cast<uint32_t>(tokens.size());
    tokens_max =
        timings.tokens_prompt + std::min(request.max_tokens, context - timings.tokens_prompt);
}

Engine::Live* Engine::find(RequestId id) {
    auto found = live_.find(id);
    return found == live_.end() ? nullptr : found->second.get();
}

Engine::Live* Engine::running(SeqIndex seq) {
    const std::optional<RequestId>& id = sequences_[seq.value];
    return id ? find(*id) : nullptr;
}

bool Engine::sampled_last(RequestId id) const {
    return std::ranges::any_of(sampled_,
                               [&](const Sampled& s) { return s.request == id && s.last; });
}

void Engine::cancel_request(RequestId id, FinishReason reason, std::optional<Error> error) {
    core_->handle(RequestCancelled{id}, clock_.now());
    finish(id, reason, std::move(error));
    core_changed_ = true;
}

void Engine::finish(RequestId id, FinishReason reason, std::optional<Error> error) {
    auto found = live_.find(id);
    BEVY_ASSERT(found != live_.end());
    std::unique_ptr<Live> live = std::move(found->second);
    live_.erase(found);
    if (live->seq) {
        sequences_[live->seq->value].reset();
        compute_.abandon(*live->seq);  // if it is in the middle of a pass
    }
    std::erase_if(to_sample_, [&](const SampleJob& job) { return job.request == id; });
    std::erase_if(sampled_, [&](const Sampled& sampled) { return sampled.request == id; });

    const Instant now = clock_.now();
    book_phase(*live, now);
    RequestTimings& timings = live->timings;
    if (!live->seq)
        timings.queued = now - live->submitted;
    else if (!live->first_token)
        timings.prefill = now - live->submitted - timings.queued;
    else
        timings.decode = now - *live->first_token;
    if (trace_) {
        if (live->seq)
            trace_->request_end(id, now);  // prefill or decode
        trace_->request_end(id, now);
    }
    if (routes_)
        routes_->finished(id);
    finished_.push_back({std::move(live), reason, std::move(error)});
}

void Engine::turn_away(Submission submission) {
    auto live = std::make_unique<Live>(std::move(submission), config_.context_per_sequence);
    live->timings.queued = clock_.now() - live->submitted;
    finished_.push_back({std::move(live), FinishReason::kCancelled, std::nullopt});
}

void Engine::note_first_token(Live& live, Instant now) {
    live.first_token = now;
    live.timings.prefill = now - live.submitted - live.timings.queued;
    book_phase(live, now);  // so that no phase reaches across the border
    if (trace_) {
        trace_->request_end(live.id, now);
        trace_->request_begin(live.id, "decode", now);
    }
}

void Engine::note_phases() {
    if (!std::exchange(core_changed_, false))
        return;
    const Instant now = clock_.now();
    count_active(now);
    for (const auto& [id, live] : live_) {
        if (!live->seq)
            continue;
        if (step_ && std::ranges::binary_search(step_->advancing, *live->seq)) {
            enter_phase(*live, RequestPhase::kComputing, now);
            continue;
        }
        const std::optional<Core::Progress> progress = core_->progress(id);
        const bool waits = progress && progress->missing_experts > 0;
        enter_phase(*live, waits ? RequestPhase::kWaiting : RequestPhase::kReady, now);
    }
}

void Engine::enter_phase(Live& live, RequestPhase phase, Instant now) {
    const uint64_t step = phase == RequestPhase::kComputing ? step_->number : 0;
    if (live.phase == phase && live.phase_step == step)
        return;
    book_phase(live, now);
    live.phase = phase;
    live.phase_step = step;
}

void Engine::book_phase(Live& live, Instant now) {
    const Duration spent = now - live.phase_since;
    if (live.phase == RequestPhase::kWaiting)
        live.timings.waiting_for_experts += spent;
    if (live.phase == RequestPhase::kComputing)
        live.timings.computing += spent;
    if (trace_ && spent > Duration{0})
        trace_->request_span(live.id, request_phase_name(live.phase), live.phase_since, now);
    live.phase_since = now;
}

void Engine::count_active(Instant now) {
    // A step or a read may outlive the last request, if that was cancelled.
    const bool active = !live_.empty() || !core_->idle();
    if (active_since_ && !active) {
        stats_.active += now - *active_since_;
        active_since_.reset();
    } else if (!active_since_ && active) {
        active_since_ = now;
    }
}

EngineSnapshot Engine::snapshot() const {
    EngineSnapshot snapshot{.stats = stats_};
    const Instant now = clock_.now();
    snapshot.stats.core = core_->stats();
    snapshot.stats.wall = now - made_;
    if (active_since_)
        snapshot.stats.active += now - *active_since_;
    for (const auto& [id, live] : live_) {
        RequestProgress row{.request = id,
                            .seq = live->seq,
                            .phase = live->phase,
                            .prefill = !live->first_token,
                            .tokens_prompt = live->timings.tokens_prompt,
                            .tokens_reused = live->timings.tokens_reused,
                            .tokens_generated = live->timings.tokens_generated};
        if (const std::optional<Core::Progress> progress = core_->progress(id)) {
            row.position = progress->position;
            row.stage = progress->stage;
            row.missing_experts = progress->missing_experts;
        }
        snapshot.requests.push_back(row);
    }
    snapshot.experts_per_layer = config_.core.experts_per_layer;
    snapshot.resident = core_->resident_by_layer();
    return snapshot;
}

}  // namespace bevy
