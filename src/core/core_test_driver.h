// A hand-stepped world around the core, for tests: performs every decision at once, lets the test
// say when reads arrive, when a step ends, and what the routers choose and guess. No time passes
// unless the test says so.
#pragma once

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/assert.h"
#include "core/core.h"
#include "core/state.h"

namespace bevy {

// Two layers of four experts, room for all of them, two reads at once.
inline CoreConfig small_config() {
    CoreConfig config;
    config.moe_layers = 2;
    config.experts_per_layer = 4;
    config.experts_used = 2;
    config.slots = 8;
    config.sequences = 4;
    config.queue_max = 8;
    config.reads_inflight_max = 2;
    config.chunk_tokens = 8;
    config.prefill_sequences = 2;
    config.expert_bytes = 1 << 20;
    config.dense_bytes = {0, 0, 0};  // nothing is saved by waiting: no holds
    return config;
}

inline std::vector<ExpertDemand> experts(std::initializer_list<uint32_t> indices) {
    std::vector<ExpertDemand> demands;
    for (uint32_t i : indices)
        demands.push_back({ExpertIndex(i), 1});
    return demands;
}

inline std::vector<ExpertIndex> indices(std::initializer_list<uint32_t> values) {
    std::vector<ExpertIndex> indices;
    for (uint32_t i : values)
        indices.emplace_back(i);
    return indices;
}

class CoreDriver {
public:
    // What the router of `layer` chooses for `request` at this point of its life.
    using Router = std::function<std::vector<ExpertDemand>(RequestId request, uint32_t layer)>;
    // What is guessed there for the following layers (SequenceAdvanced::guesses).
    using Guesser = std::function<std::vector<ExpertIndex>(RequestId request, uint32_t layer)>;

    CoreDriver(const CoreConfig& config, Router router, Guesser guesser = {})
        : core_(std::move(Core::create(config).value())),
          router_(std::move(router)),
          guesser_(std::move(guesser)) {}

    Core& core() { return *core_; }
    const CoreState& state() const { return core_->state(); }
    Instant now() const { return now_; }
    void pass_time(Duration d) { now_ = now_ + d; }

    RequestId arrive(uint32_t prompt_tokens) {
        RequestId id(++requests_);
        handle(RequestArrived{id, prompt_tokens});
        return id;
    }
    // One that may reuse, and whose chunks are kept.
    RequestId arrive(std::vector<TokenId> prompt) {
        RequestId id(++requests_);
        const auto count = static_cast<uint32_t>(prompt.size());
        handle(RequestArrived{id, count, std::move(prompt)});
        return id;
    }
    void cancel(RequestId id) { handle(RequestCancelled{id}); }

    // Takes decisions until there is none; they pile up in the public members.
    void decide() {
        while (auto action = core_->next(now_)) {
            if (auto* admit = std::get_if<AdmitRequest>(&*action)) {
                requests_by_seq[admit->seq] = admit->request;
                reused[admit->request] = admit->tokens_reused;
            } else if (auto* read = std::get_if<StartRead>(&*action))
                reads.push_back(*read);
            else if (auto* gone = std::get_if<CancelRead>(&*action))
                cancelled.push_back(gone->ticket);
            else if (auto* begun = std::get_if<StartStep>(&*action))
                step = *begun;
            else
                failed.push_back(std::get<FailRequest>(*action));
            core_->check_invariants();
        }
    }

    // The oldest read in flight ends.
    void finish_read(bool ok = true) {
        BEVY_ASSERT(!reads.empty());
        finish_read_of(reads.front().expert, ok);
    }
    void finish_read_of(ExpertId expert, bool ok = true) {
        auto read = std::ranges::find(reads, expert, &StartRead::expert);
        BEVY_ASSERT(read != reads.end());
        Ticket ticket = read->ticket;
        reads.erase(read);
        handle(ReadDone{ticket, ok, milliseconds(1)});
        if (ok)
            arrived.push_back(expert);
    }
    // In the order in which they were started.
    std::vector<uint32_t> experts_in_flight() const {
        std::vector<uint32_t> experts;
        for (const StartRead& read : reads)
            experts.push_back(read.expert.value);
        return experts;
    }

    // The step in flight ends; sequences at a router reveal what `router` says.
    StartStep finish_step() {
        BEVY_ASSERT(step.has_value());
        StartStep done = *step;
        step.reset();
        std::vector<std::vector<ExpertDemand>> routes(done.advancing.size());
        std::vector<std::vector<ExpertIndex>> guesses(done.advancing.size());
        std::vector<SequenceAdvanced> results;
        for (size_t i = 0; i < done.advancing.size(); i++) {
            SeqIndex seq = done.advancing[i];
            if (done.stage < state().config.moe_layers) {
                routes[i] = router_(requests_by_seq[seq], done.stage);
                if (guesser_ && done.wants_guesses)
                    guesses[i] = guesser_(requests_by_seq[seq], done.stage);
            }
            results.push_back({seq, routes[i], guesses[i]});
        }
        handle(StepDone{results, milliseconds(1)});
        return done;
    }

    // The engine takes a token for each request whose logits are out.
    void sample(bool last = false) {
        for (const Sequence& s : state().sequences) {
            if (s.phase == Phase::kSampling)
                handle(TokenSampled{s.request, last});
        }
    }

    // Runs everything until `request` is between two passes or gone; at most `limit` events.
    void run_until_sampling(RequestId request, int limit = 10000) {
        decide();
        while (limit-- > 0) {
            auto* s = find(request);
            if (!s || s->phase == Phase::kSampling)
                return;
            if (!reads.empty())
                finish_read();
            else if (step)
                finish_step();
            else if (auto deadline = core_->next_deadline())
                now_ = *deadline;
            else
                BEVY_ASSERT(false && "nothing to do, and the request has not ended");
            decide();
        }
    }

    const Sequence* find(RequestId request) const {
        for (const Sequence& s : state().sequences) {
            if (s.phase != Phase::kFree && s.request == request)
                return &s;
        }
        return nullptr;
    }

    std::vector<StartRead> reads;  // in flight
    std::vector<Ticket> cancelled;
    std::vector<FailRequest> failed;
    std::vector<ExpertId> arrived;
    std::optional<StartStep> step;  // in flight
    std::map<SeqIndex, RequestId> requests_by_seq;
    std::map<RequestId, uint32_t> reused;  // prompt tokens, by admitted request

private:
    void handle(const Event& event) {
        core_->handle(event, now_);
        core_->check_invariants();
    }

    std::unique_ptr<Core> core_;
    Router router_;
    Guesser guesser_;
    Instant now_{1};
    uint64_t requests_ = 0;
};

}  // namespace bevy
