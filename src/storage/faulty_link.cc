#include "storage/faulty_link.h"

#include <algorithm>
#include <array>
#include <format>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "storage/hold_back.h"

namespace bevy {

namespace {

constexpr size_t kCompletionsAtOnce = 16;

class FaultyLink final : public Link {
public:
    FaultyLink(std::unique_ptr<Link> link, LinkFaults faults)
        : link_(std::move(link)),
          faults_(std::move(faults)),
          prng_(faults_.seed),
          experts_(link_->transfers_inflight_max()) {}

    uint32_t transfers_inflight_max() const override { return link_->transfers_inflight_max(); }

    void start(Ticket ticket, ExpertId expert, SlotIndex slot) override {
        link_->start(ticket, expert, slot);
        experts_[ticket.value] = expert;
    }

    // One that is held here has finished: too late.
    void cancel(Ticket ticket) override {
        if (!is_held(ticket))
            link_->cancel(ticket);
    }

    size_t poll(std::span<LinkCompletion> out) override {
        take_finished();
        const Instant now = clock_.now();
        for (size_t i = 0; i < delayed_.size();) {
            if (delayed_[i].due > now) {
                ++i;
                continue;
            }
            held_.add(std::move(delayed_[i].completion), prng_.between(0, faults_.hold_polls_max));
            delayed_.erase(delayed_.begin() + static_cast<ptrdiff_t>(i));
        }
        const size_t count = held_.release(out);
        for (size_t i = 0; i < count; ++i)
            std::erase(held_tickets_, out[i].ticket);
        return count;
    }

    void wait(Duration timeout) override {
        take_finished();
        // What is held comes out by polling.
        if (!held_.empty())
            timeout = Duration{0};
        for (const Delayed& delayed : delayed_)
            timeout = std::clamp(delayed.due - clock_.now(), Duration{0}, timeout);
        link_->wait(timeout);
    }

    void wake() override { link_->wake(); }

private:
    struct Delayed {
        LinkCompletion completion;
        Instant due;
    };

    bool is_held(Ticket ticket) const { return std::ranges::contains(held_tickets_, ticket); }

    void take_finished() {
        std::array<LinkCompletion, kCompletionsAtOnce> finished;
        const size_t count = link_->poll(finished);
        for (size_t i = 0; i < count; ++i) {
            LinkCompletion& completion = finished[i];
            maybe_fail(completion);
            held_tickets_.push_back(completion.ticket);
            const auto delay = static_cast<int64_t>(prng_.between(
                0, static_cast<uint64_t>(std::max<int64_t>(faults_.delay_max.ns, 0))));
            delayed_.push_back({std::move(completion), clock_.now() + Duration{delay}});
        }
    }

    void maybe_fail(LinkCompletion& completion) {
        const ExpertId expert = experts_[completion.ticket.value];
        const bool struck = prng_.chance(faults_.fail_per_mille, 1000);
        if (completion.error || (!struck && !std::ranges::contains(faults_.failing, expert)))
            return;
        completion.error =
            Error{ErrorCode::kIo,
                  std::format("can't read expert number {}: made to fail for a test", expert.value),
                  {}};
    }

    std::unique_ptr<Link> link_;
    const LinkFaults faults_;
    const SystemClock clock_;
    Prng prng_;
    std::vector<ExpertId> experts_;     // [ticket], of the one in flight
    std::vector<Ticket> held_tickets_;  // finished below, not yet polled here
    std::vector<Delayed> delayed_;
    HoldBack<LinkCompletion> held_;
};

}  // namespace

std::unique_ptr<Link> make_faulty_link(std::unique_ptr<Link> link, LinkFaults faults) {
    return std::make_unique<FaultyLink>(std::move(link), std::move(faults));
}

}  // namespace bevy
