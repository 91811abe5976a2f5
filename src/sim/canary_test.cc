// Broken links and processors, put between the engine and the simulation: each must be noticed. A
// checker that has never caught anything proves nothing.
#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "sim/swarm.h"

namespace bevy {
namespace {

// Passes everything on; a canary overrides what it breaks.
class LinkCanary : public Link {
public:
    explicit LinkCanary(Link& link) : link_(link) {}
    uint32_t transfers_inflight_max() const override { return link_.transfers_inflight_max(); }
    void start(Ticket ticket, ExpertId expert, SlotIndex slot) override {
        link_.start(ticket, expert, slot);
    }
    void cancel(Ticket ticket) override { link_.cancel(ticket); }
    size_t poll(std::span<LinkCompletion> out) override { return link_.poll(out); }
    void wait(Duration timeout) override { link_.wait(timeout); }
    void wake() override { link_.wake(); }

private:
    Link& link_;
};

class ComputeCanary : public Compute {
public:
    explicit ComputeCanary(Compute& compute) : compute_(compute) {}
    void start(ComputeStep step) override { compute_.start(std::move(step)); }
    std::optional<StepResult> poll() override { return compute_.poll(); }
    void abandon(SeqIndex seq) override { compute_.abandon(seq); }
    std::span<const float> logits(SeqIndex seq) const override { return compute_.logits(seq); }

private:
    Compute& compute_;
};

// No faults and nobody who gives up: what goes wrong then is the canary's doing. Enough clients,
// layers and misses for any of them to strike.
SwarmOptions quiet_options() {
    SwarmOptions options = draw_swarm(7);
    SimModel& model = options.compute.model;
    model = {.layers = 3, .experts_per_layer = 8, .experts_used = 2, .working_set = 6};
    options.core = {.moe_layers = 3,
                    .experts_per_layer = 8,
                    .experts_used = 2,
                    .slots = 12,
                    .sequences = 4,
                    .queue_max = 8,
                    .reads_inflight_max = 4,
                    .chunk_tokens = 4,
                    .prefill_sequences = 2,
                    .expert_bytes = kMiB,
                    .dense_bytes = {kMiB, kMiB, kMiB, kMiB}};
    options.link = {.bytes_per_transfer = kMiB};
    options.compute.sequences = 4;
    options.compute.chunk_tokens = 4;
    options.compute.lanes = 2;
    options.compute.expert_bytes = kMiB;
    options.compute.dense_bytes = options.core.dense_bytes;
    options.compute.fail_per_mille = 0;
    options.workload = {.clients = 6, .prompt_tokens_max = 12, .reply_tokens_max = 12};
    options.context_per_sequence = 64;
    options.mailbox_max = 8;
    options.stop_in_the_middle = false;
    return options;
}

template <class Canary>
SwarmHooks link_hook() {
    return {.wrap_link = [](Link& link) { return std::make_unique<Canary>(link); }};
}

template <class Canary>
SwarmHooks compute_hook() {
    return {.wrap_compute = [](Compute& compute) { return std::make_unique<Canary>(compute); }};
}

TEST(Canary, NothingIsWrongWithoutOne) {
    const SwarmReport report = run_swarm(quiet_options());
    EXPECT_TRUE(report.violations.empty()) << report.violations[0];
    EXPECT_GT(report.stats.core.evictions, 20u);
    EXPECT_GT(report.stats.core.steps, 50u);
    EXPECT_EQ(report.stats.core.requests_finished, 6u);
    // The wrappers themselves break nothing either.
    EXPECT_EQ(run_swarm(quiet_options(), link_hook<LinkCanary>()).hash, report.hash);
    EXPECT_EQ(run_swarm(quiet_options(), compute_hook<ComputeCanary>()).hash, report.hash);
}

// The tenth read lands in the neighbouring slot.
class WrongSlot final : public LinkCanary {
public:
    using LinkCanary::LinkCanary;
    void start(Ticket ticket, ExpertId expert, SlotIndex slot) override {
        if (++reads_ == 10)
            slot = SlotIndex((slot.value + 1) % 12);
        LinkCanary::start(ticket, expert, slot);
    }

private:
    int reads_ = 0;
};

// The tenth read brings the neighbouring expert.
class WrongExpert final : public LinkCanary {
public:
    using LinkCanary::LinkCanary;
    void start(Ticket ticket, ExpertId expert, SlotIndex slot) override {
        if (++reads_ == 10)
            expert = ExpertId((expert.value + 1) % 24);
        LinkCanary::start(ticket, expert, slot);
    }

private:
    int reads_ = 0;
};

// The tenth read to end claims to have succeeded one turn before the bytes are there: its
// completion is made up, and the true one swallowed.
class TooEarly final : public LinkCanary {
public:
    using LinkCanary::LinkCanary;
    void start(Ticket ticket, ExpertId expert, SlotIndex slot) override {
        if (++reads_ == 10)
            early_ = ticket;
        LinkCanary::start(ticket, expert, slot);
    }
    size_t poll(std::span<LinkCompletion> out) override {
        if (!early_)
            return LinkCanary::poll(out);
        out[0] = {.ticket = *std::exchange(early_, std::nullopt)};
        return 1;
    }

private:
    int reads_ = 0;
    std::optional<Ticket> early_;
};

TEST(Canary, ALinkThatDeliversWronglyIsCaught) {
    EXPECT_FALSE(run_swarm(quiet_options(), link_hook<WrongSlot>()).violations.empty());
    EXPECT_FALSE(run_swarm(quiet_options(), link_hook<WrongExpert>()).violations.empty());
    EXPECT_FALSE(run_swarm(quiet_options(), link_hook<TooEarly>()).violations.empty());
}

// One expert of one step is left out.
class SkippedExpert final : public ComputeCanary {
public:
    using ComputeCanary::ComputeCanary;
    void start(ComputeStep step) override {
        if (!done_ && step.stage == 2 && !step.advancing.empty() && !step.uses.empty()) {
            std::erase_if(step.uses, [&](const ExpertUse& use) {
                return use.seq == step.advancing[0] && !std::exchange(done_, true);
            });
        }
        ComputeCanary::start(std::move(step));
    }

private:
    bool done_ = false;
};

// One expert of one step is computed once more in the next one of the layer.
class RepeatedExpert final : public ComputeCanary {
public:
    using ComputeCanary::ComputeCanary;
    void start(ComputeStep step) override {
        if (step.stage == 2 && !step.uses.empty()) {
            if (again_)
                step.uses = {*std::exchange(again_, std::nullopt)};
            else if (!std::exchange(noted_, true))
                again_ = step.uses.front();
        }
        ComputeCanary::start(std::move(step));
    }

private:
    bool noted_ = false;
    std::optional<ExpertUse> again_;
};

// The fifth pass computes another token than it should.
class WrongToken final : public ComputeCanary {
public:
    using ComputeCanary::ComputeCanary;
    void start(ComputeStep step) override {
        for (PassInput& pass : step.passes) {
            if (++passes_ == 5)
                pass.tokens.back() ^= 1;
        }
        ComputeCanary::start(std::move(step));
    }

private:
    int passes_ = 0;
};

// The fifth pass that is not a sequence's first is one position off.
class WrongPosition final : public ComputeCanary {
public:
    using ComputeCanary::ComputeCanary;
    void start(ComputeStep step) override {
        for (PassInput& pass : step.passes) {
            if (pass.first_position > 0 && ++passes_ == 5)
                pass.first_position++;
        }
        ComputeCanary::start(std::move(step));
    }

private:
    int passes_ = 0;
};

// Logits are those of another sequence.
class WrongLogits final : public ComputeCanary {
public:
    using ComputeCanary::ComputeCanary;
    void start(ComputeStep step) override {
        if (step.stage == 3 && step.advancing.size() > 1)
            heads_ = step.advancing;
        ComputeCanary::start(std::move(step));
    }
    std::span<const float> logits(SeqIndex seq) const override {
        if (!heads_.empty() && heads_[0] == seq)
            seq = heads_[1];
        return ComputeCanary::logits(seq);
    }

private:
    std::vector<SeqIndex> heads_;
};

TEST(Canary, AScheduleThatComputesWronglyIsCaught) {
    EXPECT_FALSE(run_swarm(quiet_options(), compute_hook<SkippedExpert>()).violations.empty());
    EXPECT_FALSE(run_swarm(quiet_options(), compute_hook<RepeatedExpert>()).violations.empty());
    EXPECT_FALSE(run_swarm(quiet_options(), compute_hook<WrongToken>()).violations.empty());
    EXPECT_FALSE(run_swarm(quiet_options(), compute_hook<WrongPosition>()).violations.empty());
    EXPECT_FALSE(run_swarm(quiet_options(), compute_hook<WrongLogits>()).violations.empty());
}

// Nobody hears that a request was given up in the middle of its prompt: its lane stays taken.
class LostAbandon final : public ComputeCanary {
public:
    using ComputeCanary::ComputeCanary;
    void abandon(SeqIndex) override {}
};

TEST(Canary, ALaneThatIsNotGivenBackIsCaught) {
    SwarmOptions options = quiet_options();
    options.core.prefill_sequences = 1;
    options.compute.lanes = 1;
    options.workload.clients = 24;
    options.workload.prompt_tokens_max = 40;
    options.workload.cancel_percent = 60;
    options.workload.cancels_until = {milliseconds(20).ns};
    const SwarmReport honest = run_swarm(options);
    EXPECT_TRUE(honest.violations.empty()) << honest.violations[0];
    EXPECT_GT(honest.stats.core.requests_cancelled, 5u);
    EXPECT_FALSE(run_swarm(options, compute_hook<LostAbandon>()).violations.empty());
}

// The link forgets to report one read: its request can never end, and the bound on turns must say
// so.
class LostRead final : public LinkCanary {
public:
    using LinkCanary::LinkCanary;
    size_t poll(std::span<LinkCompletion> out) override {
        const size_t count = LinkCanary::poll(out);
        if (count == 0 || lost_)
            return count;
        lost_ = true;
        return count - 1;
    }

private:
    bool lost_ = false;
};

TEST(Canary, ARequestThatNeverEndsIsCaught) {
    EXPECT_FALSE(run_swarm(quiet_options(), link_hook<LostRead>()).violations.empty());
}

}  // namespace
}  // namespace bevy
