// The smallest link and compute that the engine can run on, for its own unit tests. What needs
// time, faults or checked results is tested in sim/.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "compute/compute.h"
#include "core/config.h"
#include "engine/generation.h"
#include "storage/link.h"

namespace bevy {

// Every read has arrived by the next poll().
class InstantLink final : public Link {
public:
    std::optional<ExpertId> broken_expert;

    uint32_t transfers_inflight_max() const override { return 4; }
    void start(Ticket ticket, ExpertId expert, SlotIndex) override {
        LinkCompletion completion{.ticket = ticket, .bytes_read = 100};
        if (broken_expert == expert)
            completion.error = Error{ErrorCode::kIo, "sector 7 is unreadable", "replace the disk"};
        arrived_.push_back(std::move(completion));
    }
    void cancel(Ticket) override {}
    size_t poll(std::span<LinkCompletion> out) override {
        const size_t count = std::min(out.size(), arrived_.size());
        std::move(arrived_.begin(), arrived_.begin() + static_cast<ptrdiff_t>(count), out.begin());
        arrived_.erase(arrived_.begin(), arrived_.begin() + static_cast<ptrdiff_t>(count));
        return count;
    }
    void wait(Duration timeout) override {
        std::unique_lock lock(mutex_);
        waits++;
        woken_.wait_for(lock, std::chrono::nanoseconds(timeout.ns), [&] { return wake_; });
        wake_ = false;
    }
    void wake() override {
        std::lock_guard lock(mutex_);
        wake_ = true;
        woken_.notify_one();
    }

    uint64_t waits = 0;

private:
    std::vector<LinkCompletion> arrived_;
    std::mutex mutex_;
    std::condition_variable woken_;
    bool wake_ = false;
};

// Every step is done by the next poll(); routers choose the first experts, and the next token is
// always the same.
class InstantCompute final : public Compute {
public:
    static constexpr uint32_t kLayers = 2;
    static constexpr uint32_t kExperts = 4;
    static constexpr uint32_t kUsed = 2;

    bool fail_next = false;
    std::vector<ExpertIndex> guesses;     // what passes of one token hear before the last layer
    std::vector<uint32_t> decode_groups;  // sizes of stage 0 steps whose passes want logits

    void start(ComputeStep step) override {
        if (step.stage == 0) {
            uint32_t wanting = 0;
            for (const PassInput& pass : step.passes) {
                passes_[pass.seq] = pass;
                wanting += pass.wants_logits;
            }
            if (wanting > 0)
                decode_groups.push_back(wanting);
        }
        StepResult result;
        if (std::exchange(fail_next, false)) {
            result.error = Error{ErrorCode::kIo, "the backend is on fire", "add water"};
        } else {
            for (SeqIndex seq : step.advancing) {
                result.results.push_back({seq, route(seq, step.stage)});
                if (step.wants_guesses)
                    result.results.back().guesses = guess(seq, step.stage);
            }
        }
        result_ = std::move(result);
    }
    std::optional<StepResult> poll() override { return std::exchange(result_, std::nullopt); }
    void abandon(SeqIndex) override {}
    std::span<const float> logits(SeqIndex) const override { return logits_; }

private:
    std::vector<RoutedExpert> route(SeqIndex seq, uint32_t stage) const {
        const PassInput& pass = passes_.at(seq);
        if (stage == kLayers || (stage + 1 == kLayers && !pass.wants_logits))
            return {};
        const uint32_t rows = static_cast<uint32_t>(pass.tokens.size());
        return {{ExpertIndex(0), rows}, {ExpertIndex(1), rows}};
    }

    std::vector<ExpertIndex> guess(SeqIndex seq, uint32_t stage) const {
        const bool heard = stage + 1 < kLayers && passes_.at(seq).tokens.size() == 1;
        return heard ? guesses : std::vector<ExpertIndex>();
    }

    std::map<SeqIndex, PassInput> passes_;
    std::optional<StepResult> result_;
    std::vector<float> logits_ = {0, 1};
};

inline CoreConfig small_core() {
    return {.moe_layers = InstantCompute::kLayers,
            .experts_per_layer = InstantCompute::kExperts,
            .experts_used = InstantCompute::kUsed,
            .slots = 8,
            .sequences = 4,
            .queue_max = 4,
            .reads_inflight_max = 4,
            .chunk_tokens = 4,
            .prefill_sequences = 1,
            .expert_bytes = 100,
            .dense_bytes = {1, 1, 1}};
}

class FixedSampler final : public Sampler {
public:
    TokenId sample(std::span<const float> logits) override {
        return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
    }
};

// Remembers what it was told.
class RecordingSink final : public TokenSink {
public:
    uint32_t wanted = UINT32_MAX;  // tokens after which it says stop

    bool on_token(TokenId token) override {
        tokens.push_back(token);
        return tokens.size() < wanted;
    }
    void on_finish(FinishReason why, const RequestTimings& times,
                   std::optional<Error> cause) override {
        reason = why;
        timings = times;
        error = std::move(cause);
        finishes++;
    }

    std::vector<TokenId> tokens;
    std::optional<FinishReason> reason;
    RequestTimings timings;
    std::optional<Error> error;
    int finishes = 0;
};

}  // namespace bevy
