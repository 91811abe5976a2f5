#include "core/core.h"

#include <algorithm>

#include "base/assert.h"
#include "core/eviction/eviction.h"
#include "core/fetch_planner.h"
#include "core/kept_prefixes.h"
#include "core/policy/policy.h"
#include "core/prefetcher.h"
#include "core/state.h"

namespace bevy {

Core::Core(const CoreConfig& config, std::unique_ptr<FetchPlanner> planner)
    : state_(std::make_unique<CoreState>(config)),
      planner_(std::move(planner)),
      kept_(std::make_unique<KeptPrefixes>(config.sequences, config.chunk_tokens)) {
    queue_.reserve(config.queue_max);
}

Core::~Core() = default;

bool Core::can_queue() const {
    return queue_.size() < state_->config.queue_max;
}

bool Core::idle() const {
    return queue_.empty() && failures_.empty() && running() == 0 && !state_->step &&
           state_->reads_inflight == 0;
}

uint32_t Core::running() const {
    return static_cast<uint32_t>(std::ranges::count_if(
        state_->sequences, [](const Sequence& s) { return s.phase != Phase::kFree; }));
}

SeqIndex Core::index_of(const Sequence& s) const {
    return SeqIndex(static_cast<uint32_t>(&s - state_->sequences.data()));
}

Sequence* Core::find(RequestId request) {
    for (Sequence& s : state_->sequences) {
        if (s.phase != Phase::kFree && !s.abandoned && s.request == request)
            return &s;
    }
    return nullptr;
}

void Core::account(Instant now) {
    Duration passed = now - now_;
    now_ = now;
    if (passed.ns <= 0)
        return;
    if (state_->reads_inflight > 0)
        stats_.link_busy += passed;
    state_->costs.on_time(passed, state_->link_wanted());
    if (!state_->step)
        state_->idle += passed;
    if (state_->step)
        stats_.compute_busy += passed;
    else if (std::ranges::any_of(state_->sequences, &Sequence::waiting))
        stats_.stall += passed;
}

void Core::handle(const Event& event, Instant now) {
    account(now);
    std::visit([&](const auto& e) { on(e); }, event);
}

void Core::on(const RequestArrived& event) {
    BEVY_ASSERT(can_queue());
    BEVY_ASSERT(event.prompt_tokens > 0);
    BEVY_ASSERT(event.prompt.empty() || event.prompt.size() == event.prompt_tokens);
    stats_.requests_arrived++;
    queue_.push_back(event);
}

void Core::on(const RequestCancelled& event) {
    auto queued = std::ranges::find(queue_, event.request, &RequestArrived::request);
    if (queued != queue_.end()) {
        queue_.erase(queued);
        stats_.requests_cancelled++;
    } else if (Sequence* s = find(event.request)) {
        abandon(*s);
        stats_.requests_cancelled++;
    }
    // Else it has ended already: a cancellation may always cross the end of its request.
}

void Core::on(const TokenSampled& event) {
    Sequence* s = find(event.request);
    BEVY_ASSERT(s && s->phase == Phase::kSampling);
    if (event.last) {
        stats_.requests_finished++;
        free_sequence(*s);
        return;
    }
    s->target++;
    s->phase = Phase::kEntry;
}

void Core::on(const ReadDone& event) {
    Read& read = state_->reads[event.ticket.value];
    BEVY_ASSERT(read.busy);
    read.busy = false;
    state_->reads_inflight--;
    if (prefetcher_)
        prefetcher_->on_read_done(read.expert, event.ok, read.cancelled);
    Duration since_last = now_ - state_->last_arrival;
    state_->last_arrival = now_;
    if (event.ok) {
        stats_.reads_done++;
        state_->costs.on_read(std::min(since_last, event.duration));
        state_->cache.read_arrived(read.expert);
        eviction_->on_loaded(read.expert);
        for (Sequence& s : state_->sequences) {
            for (const Demand& demand : s.demands)
                s.missing -= demand.expert == read.expert && !demand.done;
        }
        return;
    }
    state_->cache.read_failed(read.expert);
    if (read.cancelled)
        return;  // whoever has asked for it since reads it again
    stats_.reads_failed++;
    for (Sequence& s : state_->sequences) {
        bool needs = std::ranges::any_of(
            s.demands, [&](const Demand& d) { return d.expert == read.expert && !d.done; });
        if (!needs || s.abandoned)
            continue;
        failures_.push_back({s.request, read.expert});
        stats_.requests_failed++;
        abandon(s);
    }
}

void Core::on(const StepDone& event) {
    BEVY_ASSERT(state_->step.has_value());
    StartStep step = std::move(*state_->step);
    state_->step.reset();
    BEVY_ASSERT(event.sequences.size() == step.advancing.size());

    uint32_t distinct = 0;
    for (size_t i = 0; i < step.uses.size(); i++)
        distinct += i == 0 || step.uses[i].expert != step.uses[i - 1].expert;
    state_->costs.on_step(step.stage, distinct, !step.advancing.empty(), event.duration);

    finish_uses(step);
    for (size_t i = 0; i < step.advancing.size(); i++) {
        BEVY_ASSERT(event.sequences[i].seq == step.advancing[i]);
        Sequence& s = state_->sequences[step.advancing[i].value];
        if (!s.abandoned)
            advance(s, step, event.sequences[i]);
    }
    for (Sequence& s : state_->sequences) {
        if (s.abandoned)
            free_sequence(s);
    }
}

void Core::finish_uses(const StartStep& step) {
    for (const StepUse& use : step.uses) {
        Sequence& s = state_->sequences[use.seq.value];
        ExpertId expert = state_->expert_id(step.stage - 1, use.expert);
        auto demand = std::ranges::find(s.demands, expert, &Demand::expert);
        BEVY_ASSERT(demand != s.demands.end() && demand->running && !demand->done);
        demand->running = false;
        demand->done = true;
        s.outstanding--;
        state_->cache.release(expert);
    }
}

void Core::advance(Sequence& s, const StartStep& step, const SequenceAdvanced& result) {
    BEVY_ASSERT(s.phase == Phase::kStep && s.outstanding == 0);
    const CoreConfig& config = state_->config;
    s.held_at_idle.reset();
    s.demands.clear();
    if (step.stage == config.moe_layers) {
        s.progress++;
        end_pass(s, s.pass.wants_logits);
        return;
    }
    bool ends_early =
        !s.pass.wants_logits && config.last_layer_is_moe && step.stage + 1 == config.moe_layers;
    if (ends_early) {
        s.progress += 2;  // this stage and the head, which it does not need
        end_pass(s, false);
        return;
    }
    s.stage = step.stage + 1;
    s.phase = Phase::kExperts;
    reveal(s, step.stage, result);
    uint64_t layers =
        s.pass.tokens == 1 ? 1 : (s.demands.size() + config.experts_used - 1) / config.experts_used;
    s.progress += std::max<uint64_t>(layers, 1);
}

void Core::end_pass(Sequence& s, bool logits) {
    bool was_prefill = s.prefilling();
    keep_pass(s);
    s.position += s.pass.tokens;
    s.stage = 0;
    s.phase = logits ? Phase::kSampling : Phase::kEntry;
    // From here on it decodes: it joins the others at a token boundary, or groups would never form
    // again.
    if (was_prefill && !s.prefilling())
        s.progress = aligned_progress(s);
}

void Core::keep_pass(const Sequence& s) {
    bool whole_chunk = s.pass.tokens == state_->config.chunk_tokens &&
                       s.pass.first_position % state_->config.chunk_tokens == 0;
    if (whole_chunk && s.pass.first_position + s.pass.tokens <= s.prompt.size())
        kept_->append(index_of(s),
                      std::span(s.prompt).subspan(s.pass.first_position, s.pass.tokens));
}

void Core::reveal(Sequence& s, uint32_t layer, const SequenceAdvanced& result) {
    BEVY_ASSERT(!result.route.empty());
    const Reveal reveal{.seq = index_of(s),
                        .layer = LayerIndex(layer),
                        .used = result.route,
                        .tokens = s.pass.tokens,
                        .running = running(),
                        .guesses = result.guesses};
    s.reveal_number = ++reveals_;
    eviction_->on_reveal(reveal);
    for (const ExpertDemand& chosen : result.route)
        demand(s, chosen, state_->expert_id(layer, chosen.expert));
    s.outstanding = static_cast<uint32_t>(result.route.size());
    if (prefetcher_)
        prefetcher_->on_reveal(*state_, reveal, stats_);
}

void Core::demand(Sequence& s, const ExpertDemand& chosen, ExpertId expert) {
    Residency residency = state_->cache.residency(expert);
    bool missing = residency != Residency::kResident;
    if (residency == Residency::kAbsent || (missing && read_is_cancelled(expert)))
        stats_.expert_misses++;
    else if (prefetcher_ && prefetcher_->is_prefetched(expert))
        stats_.expert_prefetched++;
    else
        (missing ? stats_.expert_joins : stats_.expert_hits)++;
    s.missing += missing;
    s.demands.push_back({.expert = expert, .rows = chosen.rows});
    state_->cache.demand(expert);
}

bool Core::read_is_cancelled(ExpertId expert) const {
    return std::ranges::any_of(state_->reads, [&](const Read& read) {
        return read.busy && read.cancelled && read.expert == expert;
    });
}

void Core::abandon(Sequence& s) {
    bool in_step = s.phase == Phase::kStep || std::ranges::any_of(s.demands, &Demand::running);
    release_demands(s, false);
    if (in_step)
        s.abandoned = true;  // its rows and slots are in use until the step is done
    else
        free_sequence(s);
}

void Core::release_demands(Sequence& s, bool running_too) {
    std::erase_if(s.demands, [&](const Demand& demand) {
        if (demand.running && !running_too)
            return false;
        if (!demand.done)
            state_->cache.release(demand.expert);
        return true;
    });
    s.outstanding = static_cast<uint32_t>(s.demands.size());
    s.missing = 0;
}

void Core::free_sequence(Sequence& s) {
    eviction_->on_end(index_of(s));
    if (prefetcher_)
        prefetcher_->on_end(*state_, index_of(s));
    kept_->end(index_of(s));
    release_demands(s, true);
    std::vector<Demand> keep_capacity = std::move(s.demands);
    s = Sequence{};
    s.demands = std::move(keep_capacity);
}

uint64_t Core::aligned_progress(const Sequence& newcomer) const {
    std::optional<uint64_t> smallest;
    for (const Sequence& s : state_->sequences) {
        if (&s != &newcomer && s.phase != Phase::kFree && !s.abandoned)
            smallest = std::min(smallest.value_or(s.progress), s.progress);
    }
    uint64_t stages = uint64_t{state_->config.moe_layers} + 1;
    uint64_t from = smallest.value_or(newcomer.progress);
    return (from + stages - 1) / stages * stages;
}

std::optional<Action> Core::next(Instant now) {
    account(now);
    ask_again_.reset();
    if (!failures_.empty()) {
        FailRequest failure = failures_.back();
        failures_.pop_back();
        return failure;
    }
    // The link first: it must never idle while a demand read is known.
    if (auto action = next_cancel())
        return action;
    if (auto action = next_admission())
        return action;
    if (auto action = next_read(now))
        return action;
    return next_step(now);
}

std::optional<Action> Core::next_admission() {
    if (queue_.empty())
        return std::nullopt;
    std::vector<SeqIndex> free;
    for (const Sequence& s : state_->sequences) {
        if (s.phase == Phase::kFree)
            free.push_back(index_of(s));
    }
    if (free.empty())
        return std::nullopt;
    RequestArrived arrived = std::move(queue_.front());
    queue_.erase(queue_.begin());
    const auto [seq, reused] = kept_->choose(arrived.prompt, free);
    kept_->start(seq, reused);
    Sequence& s = state_->sequences[seq.value];
    s.progress = aligned_progress(s);
    s.phase = Phase::kEntry;
    s.request = arrived.request;
    s.prompt_tokens = arrived.prompt_tokens;
    s.prompt = std::move(arrived.prompt);
    s.position = reused;
    s.target = arrived.prompt_tokens;
    eviction_->on_start(seq);
    if (prefetcher_)
        prefetcher_->on_start(seq);
    return AdmitRequest{arrived.request, seq, reused};
}

std::optional<Action> Core::next_cancel() {
    for (uint32_t i = 0; i < state_->reads.size(); i++) {
        Read& read = state_->reads[i];
        bool wanted =
            state_->cache.demands(read.expert) > 0 || state_->cache.protections(read.expert) > 0;
        if (read.busy && !read.cancelled && !wanted) {
            read.cancelled = true;
            stats_.reads_cancelled++;
            return CancelRead{Ticket(i)};
        }
    }
    return std::nullopt;
}

std::optional<Action> Core::next_read(Instant now) {
    if (state_->reads_inflight == state_->reads.size() || !state_->cache.has_room())
        return std::nullopt;
    auto expert = planner_->next(*state_);
    if (!expert && prefetcher_) {
        expert = prefetcher_->next(*state_);
        stats_.prefetches += expert.has_value();
    }
    if (!expert)
        return std::nullopt;
    auto read = std::ranges::find(state_->reads, false, &Read::busy);
    std::optional<ExpertId> evicted;
    SlotIndex slot = state_->cache.begin_read(*expert, *eviction_, evicted);
    if (state_->reads_inflight == 0)
        state_->last_arrival = now;  // the link was idle: the next interval counts from here
    *read = {.busy = true, .cancelled = false, .expert = *expert, .started = now};
    state_->reads_inflight++;
    stats_.reads_started++;
    stats_.evictions += evicted.has_value();
    if (evicted && prefetcher_)
        prefetcher_->on_evicted(*evicted);
    return StartRead{Ticket(static_cast<uint32_t>(read - state_->reads.begin())), *expert, slot};
}

std::optional<Action> Core::next_step(Instant now) {
    if (state_->step)
        return std::nullopt;
    StepChoice choice = policy_->choose(*state_, *planner_, now);
    ask_again_ = choice.ask_again;
    if (!choice.step)
        return std::nullopt;
    StartStep& step = *choice.step;
    BEVY_ASSERT(!step.uses.empty() || !step.advancing.empty());
    step.wants_guesses = prefetcher_ && prefetcher_->guesses_with(running());
    for (size_t i = 0; i < step.advancing.size(); i++) {
        Sequence& s = state_->sequences[step.advancing[i].value];
        BEVY_ASSERT(s.ready() && s.stage == step.stage);
        s.phase = Phase::kStep;
        if (step.stage == 0) {
            s.pass = step.passes[i];
            stats_.passes++;
            stats_.passes_decode += !s.prefilling();
        }
    }
    std::optional<ExpertIndex> last;
    for (const StepUse& use : step.uses) {
        Sequence& s = state_->sequences[use.seq.value];
        auto demand = std::ranges::find(s.demands, state_->expert_id(step.stage - 1, use.expert),
                                        &Demand::expert);
        BEVY_ASSERT(demand != s.demands.end() && !demand->done && !demand->running);
        demand->running = true;
        stats_.step_experts += last != use.expert;
        last = use.expert;
    }
    stats_.steps++;
    stats_.idle_steps += step.advancing.empty();
    stats_.step_sequences += step.advancing.size();
    stats_.step_expert_uses += step.uses.size();
    state_->step = step;
    state_->step_started = now;
    return step;
}

}  // namespace bevy
