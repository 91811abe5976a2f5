#include "sim/experiment.h"

#include <algorithm>
#include <deque>
#include <format>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/percentile.h"
#include "base/prng.h"
#include "core/policy/registry.h"
#include "core/state.h"
#include "engine/engine.h"
#include "sim/known_future_eviction.h"
#include "sim/merged_compute.h"
#include "sim/replay_compute.h"
#include "sim/route_source.h"
#include "sim/sim_clock.h"
#include "sim/sim_link.h"
#include "sim/sim_log.h"
#include "sim/sim_memory.h"
#include "sim/step_cost.h"

namespace bevy {

namespace {

constexpr uint32_t kVocabulary = 1u << 30;  // tokens are numbers of requests
constexpr uint32_t kQueueMax = 1u << 16;  // requests that may wait, when they arrive by themselves
constexpr uint32_t kLanes = 4;            // as a session has by default
constexpr uint32_t kTurnsBetweenQuestions = 1024;
constexpr uint64_t kTurnsWithoutTokenMax = 2'000'000;

class FirstTokenSampler final : public Sampler {
public:
    TokenId sample(std::span<const float>) override { return 0; }
};

// An exponential variate with mean 2^32, made of comparisons of uniform ones (J. von Neumann,
// "Various techniques used in connection with random digits", 1951): no logarithm, whose last bits
// differ from library to library.
uint64_t exponential(Prng& prng) {
    const auto uniform = [&] { return prng.next() >> 32; };
    for (uint64_t whole = 0;; whole++) {
        const uint64_t first = uniform();
        uint64_t last = first;
        uint32_t falling = 1;
        for (uint64_t u = uniform(); u < last; u = uniform()) {
            last = u;
            falling++;
        }
        if (falling % 2 == 1)
            return (whole << 32) + first;
    }
}

double ratio(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

class Experiment {
public:
    Experiment(const ExperimentOptions& options, const RouteSource& source);
    Result<ExperimentResult> run();

private:
    // One request. It sits at a place from its first token to its end: who ended before made room.
    class Client final : public TokenSink {
    public:
        explicit Client(Experiment& experiment) : experiment_(experiment) {}
        bool on_token(TokenId) override {
            experiment_.note_token(*this);
            return true;
        }
        void on_finish(FinishReason, const RequestTimings& timings, std::optional<Error>) override {
            experiment_.note_finish(*this, timings);
        }

        std::optional<uint32_t> place;
        Instant last_token;
        bool ended = false;

    private:
        Experiment& experiment_;
    };

    bool saturated() const { return options_.arrival_gap.ns == 0; }
    bool in_window(Instant at) const {
        return window_begin_ && at > *window_begin_ && !(window_end_ && at > *window_end_);
    }
    EngineConfig engine_config() const;
    void submit();
    void arrive_later();
    void note_token(Client& client);
    void note_finish(Client& client, const RequestTimings& timings);
    void replace_ended();
    Status run_window();
    void take_stats(EngineStats& stats, Duration& link_busy) const;
    ExperimentResult result();

    const ExperimentOptions& options_;
    const RouteSource& source_;
    const StepCosts costs_;
    SimClock clock_;
    SimLog log_;
    SimMemory memory_;
    SimLink link_;
    ReplayCompute compute_;
    Prng arrivals_;
    std::unique_ptr<Engine> engine_;

    std::vector<std::unique_ptr<Client>> clients_;  // alive
    uint64_t requests_ = 0;                         // submitted
    uint64_t requests_refused_ = 0;
    bool any_ended_ = false;
    bool stopping_ = false;
    std::deque<uint32_t> free_places_;
    uint64_t tokens_ = 0;

    // Of the window; it lasts from the token before its first to its last.
    std::optional<Instant> window_begin_;
    std::optional<Instant> window_end_;
    EngineStats stats_begin_;
    EngineStats stats_end_;
    Duration link_busy_begin_;
    Duration link_busy_end_;
    uint64_t tokens_counted_ = 0;
    std::vector<uint64_t> tokens_by_place_;
    std::vector<Duration> token_latencies_;
    std::vector<Duration> queued_;
    std::vector<Duration> prefill_;
};

SimLinkOptions link_options(const ExperimentOptions& options) {
    return {.transfers_inflight_max = options.hardware.transfers_inflight,
            .bytes_per_transfer = options.model.expert_bytes,
            .bytes_per_second = options.hardware.link_bytes_per_second,
            .latency = options.hardware.link_latency,
            .jitter = {},
            .cancel_frees_link = true};
}

// What the policy wants to hear about layers to come. An unknown policy wants nothing, and is
// refused by the core.
uint32_t guessed_layers(const CoreConfig& core) {
    const Result<PolicyName> name = parse_policy_name(core.policy);
    return name && name->predictor && name->predictor->needs_guesses ? core.lookahead : 0;
}

bool knows_the_truth(const CoreConfig& core) {
    const Result<PolicyName> name = parse_policy_name(core.policy);
    return name && name->predictor && name->predictor->needs_truth;
}

Experiment::Experiment(const ExperimentOptions& options, const RouteSource& source)
    : options_(options),
      source_(source),
      costs_(options.hardware, options.model),
      memory_(options.slots, log_),
      link_(link_options(options), sim_mix(options.seed, 'l'), clock_, memory_, log_),
      compute_({.sequences = options.parallel,
                .guessed_layers = guessed_layers(options.core),
                .guesses_are_true = knows_the_truth(options.core),
                .right_percent_resident = options.guess_right_resident,
                .right_percent_missing = options.guess_right_missing,
                .seed = sim_mix(options.seed, 'g'),
                .is_resident =
                    [this](ExpertId expert) {
                        return engine_->core().state().cache.residency(expert) !=
                               Residency::kAbsent;
                    },
                .memory_contention_per_mille = options.hardware.memory_contention_per_mille,
                .processor_contention_per_mille = options.hardware.processor_contention_per_mille},
               source, costs_, clock_, link_, log_),
      arrivals_(sim_mix(options.seed, 'a')),
      tokens_by_place_(options.parallel) {
    for (uint32_t place = 0; place < options.parallel; place++)
        free_places_.push_back(place);
}

EngineConfig Experiment::engine_config() const {
    EngineConfig config{.core = options_.core};
    CoreConfig& core = config.core;
    core.moe_layers = options_.model.layers;
    core.experts_per_layer = options_.model.experts;
    core.experts_used = options_.model.top_k;
    core.last_layer_is_moe = true;
    core.slots = options_.slots;
    core.sequences = options_.parallel;
    core.queue_max = options_.parallel;
    core.reads_inflight_max = options_.hardware.transfers_inflight;
    core.prefill_sequences = std::min(kLanes, options_.parallel);
    core.expert_bytes = options_.model.expert_bytes;
    core.dense_bytes = costs_.dense_bytes();
    core.guessed_layers = guessed_layers(core);
    core.guesses_are_true = knows_the_truth(core);
    uint32_t longest = 0;
    for (const RouteTrace::Request& request : source_.trace().requests)
        longest = std::max(longest, request.tokens);
    config.context_per_sequence = longest + 2;
    config.vocabulary = kVocabulary;
    config.mailbox_max = saturated() ? 2 * options_.parallel : kQueueMax;
    return config;
}

void Experiment::submit() {
    uint32_t tokens = source_.request(requests_).tokens;
    if (options_.request_tokens_max > 0)
        tokens = std::min(tokens, options_.request_tokens_max);
    std::vector<TokenId> prompt(std::clamp(options_.prompt_tokens, 1u, tokens));
    prompt[0] = static_cast<TokenId>(requests_ % kVocabulary);
    const auto prompt_tokens = static_cast<uint32_t>(prompt.size());
    clients_.push_back(std::make_unique<Client>(*this));
    // The last token of the text is generated from the one before: it needs no routes.
    const Result<RequestId> id = engine_->submit({.prompt = std::move(prompt),
                                                  .max_tokens = tokens - prompt_tokens + 1,
                                                  .sampler = std::make_unique<FirstTokenSampler>(),
                                                  .sink = clients_.back().get()});
    if (id) {
        requests_++;
        return;
    }
    BEVY_ASSERT(id.error().code == ErrorCode::kQueueFull);
    clients_.pop_back();
    requests_refused_++;
}

void Experiment::arrive_later() {
    __extension__ using Wide = unsigned __int128;
    const Wide gap = Wide{static_cast<uint64_t>(options_.arrival_gap.ns)} * exponential(arrivals_);
    clock_.after({static_cast<int64_t>(gap >> 32)}, [this] {
        if (stopping_)
            return;
        submit();
        arrive_later();
    });
}

void Experiment::note_token(Client& client) {
    const Instant now = clock_.now();
    const bool first = !client.place;
    if (first) {
        client.place = free_places_.front();
        free_places_.pop_front();
    }
    log_.note(now, 't', {*client.place});
    if (in_window(now)) {
        tokens_counted_++;
        tokens_by_place_[*client.place]++;
        if (!first)
            token_latencies_.push_back(now - client.last_token);
        if (tokens_counted_ == options_.tokens_measured)
            window_end_ = now;
    }
    client.last_token = now;
    tokens_++;
    if (tokens_ == options_.tokens_warmup)
        window_begin_ = now;
}

void Experiment::note_finish(Client& client, const RequestTimings& timings) {
    if (client.place)
        free_places_.push_back(*client.place);
    if (in_window(clock_.now()) && !stopping_) {
        queued_.push_back(timings.queued);
        prefill_.push_back(timings.prefill);
    }
    client.ended = true;
    any_ended_ = true;
}

// Not in note_finish(): a sink must not call the engine, nor destroy itself.
void Experiment::replace_ended() {
    if (!std::exchange(any_ended_, false))
        return;
    std::erase_if(clients_, [](const std::unique_ptr<Client>& client) { return client->ended; });
    while (saturated() && !stopping_ && clients_.size() < 2 * size_t{options_.parallel})
        submit();
}

void Experiment::take_stats(EngineStats& stats, Duration& link_busy) const {
    stats = engine_->snapshot().stats;
    link_busy = link_.busy(clock_.now());
}

Status Experiment::run_window() {
    uint64_t tokens_before = 0;
    uint64_t turns_since_token = 0;
    bool begun = false;
    if (options_.tokens_warmup == 0)
        window_begin_ = clock_.now();
    while (!window_end_ || clock_.now() == *window_end_) {
        // Tokens come one per turn while the clock stands still; those of one moment belong
        // together, so the window goes from moment to moment.
        if (window_begin_ && !std::exchange(begun, true))
            take_stats(stats_begin_, link_busy_begin_);
        if (window_end_)
            take_stats(stats_end_, link_busy_end_);
        engine_->step();
        replace_ended();
        if (std::exchange(tokens_before, tokens_) != tokens_)
            turns_since_token = 0;
        else if (++turns_since_token > kTurnsWithoutTokenMax)
            return fail(ErrorCode::kInvalidArgument,
                        std::format("no token in {} turns of the engine's loop: the policies do "
                                    "not work with {} slots for {} requests",
                                    kTurnsWithoutTokenMax, options_.slots, options_.parallel));
        const bool ask = options_.keep_going && turns_since_token % kTurnsBetweenQuestions == 0;
        if (ask && !options_.keep_going())
            return fail(ErrorCode::kCancelled, "the experiment was cancelled");
    }
    return {};
}

Result<ExperimentResult> Experiment::run() {
    EngineConfig config = engine_config();
    CoreParts parts;
    if (config.core.eviction == kKnownFutureEviction) {
        parts.eviction = std::make_unique<KnownFutureEviction>(
            compute_, options_.model.layers, options_.model.experts, options_.parallel);
    }
    Result<std::unique_ptr<Engine>> engine =
        Engine::create(config, link_, compute_, clock_, nullptr, nullptr, std::move(parts));
    if (!engine)
        return std::unexpected(engine.error());
    engine_ = std::move(*engine);
    if (saturated()) {
        for (uint32_t i = 0; i < 2 * options_.parallel; i++)
            submit();
    } else {
        arrive_later();
    }
    const Status status = run_window();
    stopping_ = true;
    engine_->stop();
    while (!engine_->done())
        engine_->step();
    BEVY_ASSERT(log_.violations().empty());
    if (!status)
        return std::unexpected(status.error());
    return result();
}

ExperimentResult Experiment::result() {
    ExperimentResult result{.window = *window_end_ - *window_begin_,
                            .tokens = tokens_counted_,
                            .stats = stats_end_.since(stats_begin_),
                            .link_busy = link_busy_end_ - link_busy_begin_,
                            .token_latency_p50 = percentile(token_latencies_, 50),
                            .token_latency_p99 = percentile(token_latencies_, 99),
                            .queued_p50 = percentile(queued_, 50),
                            .queued_p99 = percentile(queued_, 99),
                            .prefill_p50 = percentile(prefill_, 50),
                            .prefill_p99 = percentile(prefill_, 99),
                            .requests_refused = requests_refused_,
                            .hash = log_.hash(),
                            .transfer = costs_.transfer()};
    if (saturated()) {
        const auto [least, most] = std::ranges::minmax(tokens_by_place_);
        result.fairness_spread = static_cast<double>(most - least) * options_.parallel /
                                 static_cast<double>(tokens_counted_);
    }
    result.merged_compute_per_token =
        merged_compute_per_token({.parallel = options_.parallel,
                                  .request_tokens_max = options_.request_tokens_max,
                                  .tokens_skipped = options_.tokens_warmup,
                                  .tokens = options_.tokens_measured},
                                 source_, costs_);
    return result;
}

}  // namespace

Result<ExperimentResult> run_experiment(const ExperimentOptions& options, const RouteTrace& trace) {
    const ModelProfile& model = options.model;
    if (trace.layers != model.layers || trace.experts != model.experts ||
        trace.top_k != model.top_k)
        return fail(ErrorCode::kUnsupported,
                    std::format("the routes are of a model with {} layers, {} experts and {} of "
                                "them per token, but {} has {}, {} and {}",
                                trace.layers, trace.experts, trace.top_k, model.name, model.layers,
                                model.experts, model.top_k));
    const Result<RouteSource> source = RouteSource::create(
        trace,
        {.drop_tokens = options.drop_tokens, .staggered = options.parallel, .seed = options.seed});
    if (!source)
        return std::unexpected(source.error());
    return Experiment(options, *source).run();
}

double bound_tokens_per_second(const ExperimentResult& run, const ExperimentResult& lockstep) {
    const double compute = run.merged_compute_per_token.seconds();
    const double link = lockstep.reads_per_token() * run.transfer.seconds();
    return ratio(1, std::max(compute, link));
}

double ExperimentResult::tokens_per_second() const {
    return ratio(static_cast<double>(tokens), window.seconds());
}

double ExperimentResult::misses_per_token() const {
    return ratio(static_cast<double>(stats.core.expert_misses), static_cast<double>(tokens));
}

double ExperimentResult::reads_per_token() const {
    return ratio(static_cast<double>(stats.core.reads_started), static_cast<double>(tokens));
}

double ExperimentResult::link_utilisation() const {
    return ratio(link_busy.seconds(), window.seconds());
}

double ExperimentResult::compute_utilisation() const {
    return ratio(stats.core.compute_busy.seconds(), window.seconds());
}

double ExperimentResult::stall_share() const {
    return ratio(stats.core.stall.seconds(), window.seconds());
}

}  // namespace bevy
