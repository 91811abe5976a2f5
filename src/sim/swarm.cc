#include "sim/swarm.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/prng.h"
#include "core/state.h"
#include "engine/engine.h"
#include "sim/sim_clock.h"
#include "sim/sim_log.h"
#include "sim/sim_memory.h"

namespace bevy {

namespace {

class SimSampler final : public Sampler {
public:
    TokenId sample(std::span<const float> logits) override { return SimModel::sample(logits); }
};

// One client while it is served, and what it has seen.
class Client final : public TokenSink {
public:
    Client(const SimClient& wanted, uint32_t number, const SimClock& clock, SimLog& log)
        : wish(wanted), number_(number), clock_(clock), log_(log) {}

    bool on_token(TokenId token) override {
        log_.note(clock_.now(), 't', {number_, static_cast<uint64_t>(token)});
        if (reason)
            violation("got a token after its end");
        reply.push_back(token);
        if (wish.cancel_after == reply.size()) {
            gave_up = true;
            cancel();
        }
        return wish.stop_after != reply.size();
    }

    void on_finish(FinishReason why, const RequestTimings& timings,
                   std::optional<Error> error) override {
        log_.note(clock_.now(), 'f', {number_, static_cast<uint64_t>(why)});
        if (reason)
            violation("ended twice");
        reason = why;
        if (error.has_value() != (why == FinishReason::kError))
            violation("an error that does not match the reason of its end");
        if (timings.tokens_generated != reply.size() || timings.tokens_prompt != wish.prompt.size())
            violation("wrong token counts");
        if (timings.tokens_reused >= wish.prompt.size() ||
            (timings.tokens_reused > 0 && !wish.reuse_prompt))
            violation("it reused what it must not");
        const Duration life = clock_.now() - submitted;
        if (timings.queued + timings.prefill + timings.decode != life)
            violation("its times don't add up");
        if (timings.waiting_for_experts + timings.computing > timings.prefill + timings.decode)
            violation("it waited and computed longer than it ran");
    }

    void violation(const std::string& what) {
        log_.violation("client " + std::to_string(number_) + ": " + what);
    }
    bool ended() const { return reason || refused; }

    const SimClient wish;
    std::function<void()> cancel;
    std::optional<RequestId> id;
    Instant submitted;
    std::vector<TokenId> reply;
    std::optional<FinishReason> reason;
    bool gave_up = false;
    bool refused = false;  // the engine was stopping

private:
    const uint32_t number_;
    const SimClock& clock_;
    SimLog& log_;
};

// An engine whose run broke off in the middle. Its destructor would rightly refuse, so it is kept.
void bury(std::unique_ptr<Engine> engine) {
    static auto& unfinished = *new std::vector<std::unique_ptr<Engine>>;
    unfinished.push_back(std::move(engine));
}

class Swarm {
public:
    Swarm(const SwarmOptions& options, const SwarmHooks& hooks);
    SwarmReport run();

private:
    void submit(Client& client);
    void give_up(Client& client);
    void turn();
    // Turns until `condition` holds; a violation if that takes too long.
    template <class Condition>
    bool turn_until(Condition condition, const char* what);
    void check_rest();
    void check_reply(Client& client);
    void check_stats(const EngineStats& stats);

    const SwarmOptions& options_;
    Prng prng_;
    SimClock clock_;
    SimLog log_;
    SimMemory memory_;
    SimLink link_;
    SimCompute compute_;
    std::unique_ptr<Link> wrapped_link_;
    std::unique_ptr<Compute> wrapped_compute_;
    std::vector<std::unique_ptr<Client>> clients_;
    std::unique_ptr<Engine> engine_;
    uint64_t turns_ = 0;
    uint64_t turns_max_ = 0;
    bool stopped_ = false;
};

Swarm::Swarm(const SwarmOptions& options, const SwarmHooks& hooks)
    : options_(options),
      prng_(sim_mix(options.seed, 1)),
      memory_(options.core.slots, log_),
      link_(options.link, sim_mix(options.seed, 2), clock_, memory_, log_),
      compute_(options.compute, sim_mix(options.seed, 3), clock_, memory_, log_,
               [this] { link_.wake(); }) {
    Link* link = &link_;
    Compute* compute = &compute_;
    if (hooks.wrap_link)
        link = (wrapped_link_ = hooks.wrap_link(link_)).get();
    if (hooks.wrap_compute)
        compute = (wrapped_compute_ = hooks.wrap_compute(compute_)).get();
    auto engine = Engine::create({.core = options.core,
                                  .context_per_sequence = options.context_per_sequence,
                                  .vocabulary = SimModel::kVocabulary,
                                  .mailbox_max = options.mailbox_max},
                                 *link, *compute, clock_, hooks.trace);
    if (!engine) {
        log_.violation("the engine refuses the options: " + engine.error().text());
        return;
    }
    engine_ = std::move(*engine);

    uint64_t tokens = 0;
    for (const SimClient& wish : draw_workload(options.workload, prng_)) {
        const uint32_t number = static_cast<uint32_t>(clients_.size());
        clients_.push_back(std::make_unique<Client>(wish, number, clock_, log_));
        Client& client = *clients_.back();
        client.cancel = [this, &client] { engine_->cancel(*client.id); };
        clock_.at(wish.arrival, [this, &client] { submit(client); });
        if (wish.cancel_at)
            clock_.at(*wish.cancel_at, [this, &client] { give_up(client); });
        tokens += wish.prompt.size() + wish.max_tokens;
    }
    // A handful of turns for each read and each step that there could be.
    const uint64_t stages = options.core.moe_layers + 1;
    turns_max_ = 5000 + 20 * tokens * stages * (options.core.experts_used + 2);
}

void Swarm::submit(Client& client) {
    Result<RequestId> id = engine_->submit({.prompt = client.wish.prompt,
                                            .max_tokens = client.wish.max_tokens,
                                            .sampler = std::make_unique<SimSampler>(),
                                            .sink = &client,
                                            .reuse_prompt = client.wish.reuse_prompt});
    if (id) {
        client.id = *id;
        client.submitted = clock_.now();
    } else if (id.error().code == ErrorCode::kQueueFull) {
        clock_.after(milliseconds(2), [this, &client] { submit(client); });
    } else if (id.error().code == ErrorCode::kCancelled && stopped_) {
        client.refused = true;
    } else {
        client.violation("refused: " + id.error().text());
        client.refused = true;
    }
}

void Swarm::give_up(Client& client) {
    if (!client.id)
        return;
    client.gave_up = true;
    const bool alive = engine_->cancel(*client.id);
    if (alive != !client.reason)
        client.violation("cancel() does not know whether it is alive");
}

void Swarm::turn() {
    engine_->step();
    engine_->core().check_invariants();
    if (prng_.chance(1, 16)) {
        for (const RequestProgress& row : engine_->snapshot().requests) {
            if (row.position > row.tokens_prompt + row.tokens_generated)
                log_.violation("a request is further than its tokens");
        }
    }
    turns_++;
}

template <class Condition>
bool Swarm::turn_until(Condition condition, const char* what) {
    while (!condition()) {
        if (turns_ > turns_max_ || !log_.violations().empty()) {
            log_.violation(std::string("gave up after ") + std::to_string(turns_) +
                           " turns: " + what);
            return false;
        }
        turn();
    }
    return true;
}

SwarmReport Swarm::run() {
    bool ok = engine_ != nullptr;
    if (ok && options_.stop_in_the_middle) {
        const uint64_t turns = prng_.below(2000);
        auto all_ended = [&] { return std::ranges::all_of(clients_, &Client::ended); };
        ok = turn_until([&] { return turns_ >= turns || all_ended(); }, "the first half");
        stopped_ = true;
        engine_->stop();
    }
    ok = ok && turn_until([&] { return std::ranges::all_of(clients_, &Client::ended); },
                          "a request did not end");
    ok = ok && turn_until([&] { return engine_->core().idle(); }, "the core did not become idle");
    SwarmReport report;
    if (ok) {
        check_rest();
        report.stats = engine_->snapshot().stats;
        check_stats(report.stats);
        engine_->stop();
        ok = turn_until([&] { return engine_->done(); }, "the engine did not stop");
    }
    for (const std::unique_ptr<Client>& client : clients_) {
        if (ok)
            check_reply(*client);
        report.replies.push_back(client->reply);
    }
    if (!ok && engine_)
        bury(std::move(engine_));
    report.violations = log_.violations();
    report.hash = log_.hash();
    report.turns = turns_;
    return report;
}

void Swarm::check_rest() {
    const CoreState& state = engine_->core().state();
    if (state.cache.slots_pinned() != 0 || state.cache.slots_loading() != 0)
        log_.violation("slots are pinned or loading although nothing runs");
    if (state.cache.slots_free() + state.cache.evictable() != options_.core.slots)
        log_.violation("slots got lost");
    if (!engine_->snapshot().requests.empty())
        log_.violation("requests are alive although all have ended");
}

void Swarm::check_stats(const EngineStats& stats) {
    const CoreStats& core = stats.core;
    if (core.requests_arrived !=
        core.requests_finished + core.requests_cancelled + core.requests_failed)
        log_.violation("requests got lost");
    if (core.reads_started > core.expert_misses + core.prefetches)
        log_.violation("more reads than misses and prefetches");
    if (core.prefetches_useful > core.prefetches || core.guesses_right > core.guesses)
        log_.violation("more right guesses than guesses");
    if (core.reads_done + core.reads_failed > core.reads_started ||
        core.reads_done + core.reads_failed + core.reads_cancelled < core.reads_started)
        log_.violation("reads got lost");
    if (core.compute_busy > stats.active || core.stall > stats.active || stats.active > stats.wall)
        log_.violation("busy for longer than there was time");
    uint64_t generated = 0;
    for (const std::unique_ptr<Client>& client : clients_)
        generated += client->reply.size();
    if (stats.tokens_generated != generated)
        log_.violation("generated tokens are counted wrong");
}

void Swarm::check_reply(Client& client) {
    const SimClient& wish = client.wish;
    const uint32_t prompt = static_cast<uint32_t>(wish.prompt.size());
    const uint32_t room = std::min(wish.max_tokens, options_.context_per_sequence - prompt);
    const std::vector<TokenId> expected = options_.compute.model.reply(wish.prompt, room);
    if (client.reply.size() > room ||
        !std::equal(client.reply.begin(), client.reply.end(), expected.begin()))
        client.violation("its reply differs from that of the reference");
    if (client.refused)
        return;
    const bool faults = options_.link.fail_per_mille > 0 || options_.compute.fail_per_mille > 0;
    switch (*client.reason) {
        case FinishReason::kStop:
            if (wish.stop_after != client.reply.size())
                client.violation("it did not ask to stop here");
            break;
        case FinishReason::kLength:
            if (client.reply.size() != room)
                client.violation("its reply is too short");
            break;
        case FinishReason::kCancelled:
            if (!client.gave_up && !stopped_)
                client.violation("nobody cancelled it");
            break;
        case FinishReason::kError:
            if (!faults)
                client.violation("failed, but nothing did");
            break;
    }
}

}  // namespace

SwarmReport run_swarm(const SwarmOptions& options, const SwarmHooks& hooks) {
    return Swarm(options, hooks).run();
}

}  // namespace bevy
