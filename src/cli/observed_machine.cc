#include "cli/observed_machine.h"

#include <algorithm>
#include <optional>
#include <set>

namespace bevy {

class ObservedMachine::ComputeOnlooker final : public Compute {
public:
    ComputeOnlooker(ObservedMachine& machine, std::unique_ptr<Compute> compute)
        : machine_(machine), compute_(std::move(compute)) {}

    void start(ComputeStep step) override {
        for (const PassInput& pass : step.passes) {
            if (pass.tokens.size() > 1)
                chunks_.insert(pass.seq);
            else
                chunks_.erase(pass.seq);
        }
        Step seen{.work = {.stage = step.stage,
                           .pairs = static_cast<uint32_t>(step.uses.size()),
                           .rows = static_cast<uint32_t>(step.advancing.size()),
                           .advances = !step.advancing.empty()}};
        bool chunk = std::ranges::any_of(step.advancing,
                                         [&](SeqIndex seq) { return chunks_.contains(seq); });
        for (size_t i = 0; i < step.uses.size(); i++) {
            seen.work.experts += i == 0 || step.uses[i - 1].expert != step.uses[i].expert;
            chunk |= chunks_.contains(step.uses[i].seq);
        }
        seen.started = machine_.clock_.now();
        if (!chunk)
            running_ = seen;
        compute_->start(std::move(step));
    }

    std::optional<StepResult> poll() override {
        std::optional<StepResult> result = compute_->poll();
        if (result && running_) {
            running_->finished = machine_.clock_.now();
            if (!result->error)
                machine_.steps_.push_back(*running_);
            running_.reset();
        }
        return result;
    }

    void abandon(SeqIndex seq) override { compute_->abandon(seq); }
    std::span<const float> logits(SeqIndex seq) const override { return compute_->logits(seq); }

private:
    ObservedMachine& machine_;
    std::unique_ptr<Compute> compute_;
    std::set<SeqIndex> chunks_;  // whose pass has several tokens
    std::optional<Step> running_;
};

class ObservedMachine::LinkOnlooker final : public Link {
public:
    LinkOnlooker(ObservedMachine& machine, std::unique_ptr<Link> link)
        : machine_(machine), link_(std::move(link)) {}

    uint32_t transfers_inflight_max() const override { return link_->transfers_inflight_max(); }
    void start(Ticket ticket, ExpertId expert, SlotIndex slot) override {
        link_->start(ticket, expert, slot);
    }
    void cancel(Ticket ticket) override { link_->cancel(ticket); }
    size_t poll(std::span<LinkCompletion> out) override {
        const size_t count = link_->poll(out);
        for (const LinkCompletion& completion : out.first(count)) {
            if (!completion.error)
                machine_.transfers_.push_back({completion.started, completion.finished});
        }
        return count;
    }
    void wait(Duration timeout) override { link_->wait(timeout); }
    void wake() override { link_->wake(); }

private:
    ObservedMachine& machine_;
    std::unique_ptr<Link> link_;
};

void ObservedMachine::decorate(SessionEvents& events) {
    events.decorate_compute = [this](std::unique_ptr<Compute> compute) {
        return std::make_unique<ComputeOnlooker>(*this, std::move(compute));
    };
    events.decorate_link = [this](std::unique_ptr<Link> link) {
        return std::make_unique<LinkOnlooker>(*this, std::move(link));
    };
}

std::vector<StepSample> ObservedMachine::samples() const {
    // The times in which any transfer was under way, without overlaps.
    std::vector<Transfer> sorted = transfers_;
    std::ranges::sort(sorted, {}, &Transfer::started);
    std::vector<Transfer> busy;
    for (const Transfer& transfer : sorted) {
        if (!busy.empty() && transfer.started <= busy.back().finished)
            busy.back().finished = std::max(busy.back().finished, transfer.finished);
        else
            busy.push_back(transfer);
    }
    std::vector<StepSample> samples;
    auto first = busy.begin();  // the first that may reach into the step; steps follow each other
    for (const Step& step : steps_) {
        while (first != busy.end() && first->finished <= step.started)
            ++first;
        StepSample sample{.work = step.work,
                          .head = step.work.stage == shape_.moe_layers,
                          .bytes = step.work.experts * expert_bytes_,
                          .took = step.finished - step.started};
        if (step.work.advances)
            sample.bytes += shape_.dense_bytes[step.work.stage];
        for (auto it = first; it != busy.end() && it->started < step.finished; ++it)
            sample.link_busy +=
                std::min(it->finished, step.finished) - std::max(it->started, step.started);
        samples.push_back(sample);
    }
    return samples;
}

}  // namespace bevy
