#include "cli/bench_run.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "base/change_signal.h"
#include "base/clock.h"
#include "base/percentile.h"
#include "base/prng.h"
#include "cli/interrupt.h"
#include "cli/probe.h"
#include "cli/report.h"
#include "text/llama_sampler_chain.h"

namespace bevy {
namespace {

constexpr Duration kTurn = milliseconds(50);
constexpr Duration kProbe = milliseconds(1500);
constexpr uint32_t kRandomPrompts = 64;

struct GeneratedToken {
    TokenId token = 0;
    Instant at;
};

// Where the tokens of all requests are counted. note_*(): the engine thread; the rest: any.
class Meter {
public:
    Meter(uint32_t requests, const BenchLoad& load, const Clock& clock)
        : clock_(clock),
          begin_count_(uint64_t{requests} * load.warmup),
          end_count_(uint64_t{requests} * (load.warmup + load.tokens)),
          tokens_(requests),
          ended_(requests) {}

    // False: enough.
    bool note_token(uint32_t request, TokenId token) {
        const std::lock_guard lock(mutex_);
        if (count_ == end_count_)
            return false;
        const Instant now = clock_.now();
        tokens_[request].push_back({token, now});
        count_++;
        if (count_ == begin_count_)
            begin_ = now;
        if (count_ == end_count_)
            end_ = now;
        if (count_ == begin_count_ || count_ == end_count_)
            changed_.notify();
        return count_ < end_count_;
    }

    void note_end(uint32_t request, FinishReason reason, std::optional<Error> error) {
        const std::lock_guard lock(mutex_);
        ended_[request] = true;
        if (error && !error_)
            error_ = std::move(error);
        out_of_context_ |= reason == FinishReason::kLength && count_ < end_count_;
        changed_.notify();
    }

    enum class Phase : uint8_t { kWarmup, kWindow, kOver };
    Phase phase() const {
        const std::lock_guard lock(mutex_);
        if (count_ >= end_count_ || error_ || out_of_context_)
            return Phase::kOver;
        return count_ >= begin_count_ ? Phase::kWindow : Phase::kWarmup;
    }
    bool all_ended() const {
        const std::lock_guard lock(mutex_);
        return std::ranges::all_of(ended_, std::identity());
    }
    void wait() { changed_.wait(kTurn); }

    // Once all have ended.
    Status outcome() const {
        if (error_)
            return std::unexpected(*error_);
        if (out_of_context_)
            return fail(ErrorCode::kInvalidArgument,
                        "a request reached the end of its context while it was measured",
                        "give a larger -c, or fewer tokens with -n");
        if (count_ < end_count_)
            return fail(ErrorCode::kIo, "the measurement was interrupted");
        return {};
    }
    // REQUIRES: a good outcome.
    void fill(BenchResult& result, Instant started, uint64_t prompt_tokens) const;

private:
    const Clock& clock_;
    const uint64_t begin_count_;
    const uint64_t end_count_;
    ChangeSignal changed_;
    mutable std::mutex mutex_;
    std::vector<std::vector<GeneratedToken>> tokens_;
    std::vector<bool> ended_;
    uint64_t count_ = 0;
    Instant begin_;
    Instant end_;
    std::optional<Error> error_;
    bool out_of_context_ = false;
};

void Meter::fill(BenchResult& result, Instant started, uint64_t prompt_tokens) const {
    std::vector<Duration> first;
    std::vector<Duration> gaps;
    std::vector<uint64_t> counts;
    for (const std::vector<GeneratedToken>& tokens : tokens_) {
        BEVY_ASSERT(!tokens.empty());
        first.push_back(tokens.front().at - started);
        uint64_t count = 0;
        for (size_t i = 0; i < tokens.size(); i++) {
            if (tokens[i].at <= begin_)
                continue;
            count++;
            if (i > 0)
                gaps.push_back(tokens[i].at - tokens[i - 1].at);
        }
        counts.push_back(count);
        std::vector<TokenId>& output = result.outputs.emplace_back();
        for (const GeneratedToken& token : tokens)
            output.push_back(token.token);
    }
    result.tokens = end_count_ - begin_count_;
    result.window = end_ - begin_;
    result.first_token_max = *std::ranges::max_element(first);
    result.prompt_tokens_per_second =
        static_cast<double>(prompt_tokens) / result.first_token_max.seconds();
    result.first_token_p50 = percentile(first, 50);
    result.token_gap_p50 = percentile(gaps, 50);
    result.token_gap_p99 = percentile(gaps, 99);
    const auto [least, most] = std::ranges::minmax(counts);
    result.fairness_spread = static_cast<double>(most - least) *
                             static_cast<double>(counts.size()) /
                             static_cast<double>(result.tokens);
}

class MeteredSink final : public TokenSink {
public:
    MeteredSink(Meter& meter, uint32_t request) : meter_(meter), request_(request) {}
    bool on_token(TokenId token) override { return meter_.note_token(request_, token); }
    void on_finish(FinishReason reason, const RequestTimings& /*timings*/,
                   std::optional<Error> error) override {
        meter_.note_end(request_, reason, std::move(error));
    }

private:
    Meter& meter_;
    uint32_t request_;
};

// Greedy, and never the end of a text: every request generates until the window is over.
SamplingParams bench_sampling() {
    SamplingParams params;
    params.temperature = 0;
    params.ignore_end_of_generation = true;
    return params;
}

// The requests of one measurement; none is left to the engine when it goes.
class BenchRequests {
public:
    BenchRequests(Session& session, const BenchLoad& load, uint32_t requests, Meter& meter)
        : session_(session), load_(load), meter_(meter) {
        for (uint32_t i = 0; i < requests; i++)
            sinks_.emplace_back(meter, i);
    }
    ~BenchRequests() {
        for (const RequestId id : ids_)
            session_.engine().cancel(id);
        // Those that were never submitted do not end.
        for (size_t i = ids_.size(); i < sinks_.size(); i++)
            sinks_[i].on_finish(FinishReason::kCancelled, {}, {});
        while (!meter_.all_ended())
            meter_.wait();
    }
    BenchRequests(const BenchRequests&) = delete;
    BenchRequests& operator=(const BenchRequests&) = delete;

    // Returns the number of all prompts' tokens.
    Result<uint64_t> submit() {
        uint64_t prompt_tokens = 0;
        std::vector<std::unique_ptr<Sampler>> samplers;
        for (size_t i = 0; i < sinks_.size(); i++) {
            Result<std::unique_ptr<Sampler>> sampler = make_sampler(
                session_.vocabulary(), bench_sampling(), session_.context(), prompt(i));
            if (!sampler)
                return std::unexpected(sampler.error());
            samplers.push_back(std::move(*sampler));
        }
        for (size_t i = 0; i < sinks_.size(); i++) {
            Result<RequestId> id = session_.engine().submit({.prompt = prompt(i),
                                                             .max_tokens = session_.context(),
                                                             .sampler = std::move(samplers[i]),
                                                             .sink = &sinks_[i]});
            if (!id)
                return std::unexpected(id.error());
            ids_.push_back(*id);
            prompt_tokens += prompt(i).size();
        }
        return prompt_tokens;
    }

private:
    const std::vector<TokenId>& prompt(size_t request) const {
        return load_.prompts[request % load_.prompts.size()];
    }

    Session& session_;
    const BenchLoad& load_;
    Meter& meter_;
    std::deque<MeteredSink> sinks_;
    std::vector<RequestId> ids_;
};

// Waits until the phase is over or the user interrupts.
void wait_through(Meter& meter, Meter::Phase phase) {
    while (meter.phase() == phase && !interrupted())
        meter.wait();
}

}  // namespace

double BenchResult::tokens_per_second() const {
    return static_cast<double>(tokens) / window.seconds();
}

double BenchResult::of_bound() const {
    const double reads = link_bytes_per_second > 0
                             ? static_cast<double>(stats.link_bytes) / link_bytes_per_second
                             : 0.0;
    const double steps = stats.compute_utilisation() * stats.active.seconds();
    return std::max(reads, steps) / stats.wall.seconds();
}

std::vector<std::vector<TokenId>> random_prompts(const LlamaVocabulary& vocabulary,
                                                 uint32_t tokens) {
    std::vector<std::vector<TokenId>> prompts(kRandomPrompts);
    Prng prng(1);
    for (std::vector<TokenId>& prompt : prompts) {
        while (prompt.size() < tokens) {
            const auto token = static_cast<TokenId>(prng.below(vocabulary.vocabulary_size()));
            // A token without text is a special one.
            if (!vocabulary.is_end_of_generation(token) && !vocabulary.piece(token, false).empty())
                prompt.push_back(token);
        }
    }
    return prompts;
}

uint32_t bench_context(const BenchLoad& load) {
    size_t prompt = 0;
    for (const std::vector<TokenId>& tokens : load.prompts)
        prompt = std::max(prompt, tokens.size());
    // Requests run ahead of each other, but not far.
    return static_cast<uint32_t>(round_up(prompt + 2 * (load.warmup + load.tokens), 64));
}

Result<BenchResult> run_bench(const OpenedModel& model, const SessionOptions& options,
                              const BenchLoad& load, const SessionEvents& events) {
    BenchResult result;
    Result<LinkProbe> probe = probe_link(model, options, kProbe);
    if (!probe)
        return std::unexpected(probe.error());
    result.link_bytes_per_second = probe->bytes_per_second;
    restart_peak_resident_bytes();
    Result<std::unique_ptr<Session>> opened = Session::open(options, events);
    if (!opened)
        return std::unexpected(opened.error());
    Session& session = **opened;
    result.slots = session.plan().slots;
    result.experts = model.experts.table.expert_count();
    result.expert_cache_bytes = session.plan().slots_bytes;
    const SystemClock clock;
    Meter meter(options.parallel, load, clock);
    uint64_t prompt_tokens = 0;
    const Instant started = clock.now();
    {
        BenchRequests requests(session, load, options.parallel, meter);
        Result<uint64_t> submitted = requests.submit();
        if (!submitted)
            return std::unexpected(submitted.error());
        prompt_tokens = *submitted;
        wait_through(meter, Meter::Phase::kWarmup);
        const EngineStats begin = session.engine().snapshot().stats;
        wait_through(meter, Meter::Phase::kWindow);
        result.stats = session.engine().snapshot().stats.since(begin);
    }
    if (Status status = meter.outcome(); !status)
        return std::unexpected(status.error());
    meter.fill(result, started, prompt_tokens);
    result.peak_resident_bytes = peak_resident_bytes();
    if (Status closed = session.close(); !closed)
        return std::unexpected(closed.error());
    return result;
}

}  // namespace bevy
