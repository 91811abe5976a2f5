#include "sim/sim_link.h"

#include <algorithm>
#include <string>
#include <utility>

namespace bevy {

SimLink::SimLink(const SimLinkOptions& options, uint64_t seed, SimClock& clock, SimMemory& memory,
                 SimLog& log)
    : options_(options),
      prng_(seed),
      clock_(clock),
      memory_(memory),
      log_(log),
      transfers_(options.transfers_inflight_max) {}

void SimLink::start(Ticket ticket, ExpertId expert, SlotIndex slot) {
    const Instant now = clock_.now();
    log_.note(now, 'r', {ticket.value, expert.value, slot.value});
    if (ticket.value >= transfers_.size() || transfers_[ticket.value].busy) {
        log_.violation("a read with ticket " + std::to_string(ticket.value) + ", which is in use");
        return;
    }
    memory_.begin_write(slot);
    const uint64_t number = ++started_;
    transfers_[ticket.value] = {true, false, number, expert, slot, now};

    const Duration transfer{static_cast<int64_t>(options_.bytes_per_transfer * 1'000'000'000 /
                                                 options_.bytes_per_second)};
    free_at_ = std::max(free_at_, now) + transfer;
    busy_ += transfer;
    const Duration jitter{
        static_cast<int64_t>(prng_.below(static_cast<uint64_t>(options_.jitter.ns) + 1))};
    const bool fails = now < options_.faults_until && prng_.chance(options_.fail_per_mille, 1000);
    clock_.at(free_at_ + options_.latency + jitter, [=, this] {
        std::optional<Error> error;
        if (fails)
            error = Error{ErrorCode::kIo, "the simulated disk failed", {}};
        end(ticket, number, std::move(error));
    });
}

void SimLink::cancel(Ticket ticket) {
    log_.note(clock_.now(), 'x', {ticket.value});
    const Transfer& transfer = transfers_[ticket.value];
    if (!transfer.busy) {
        log_.violation("a cancellation of ticket " + std::to_string(ticket.value) +
                       ", which is not in use");
        return;
    }
    if (transfer.ended || !prng_.chance(options_.cancel_works_percent, 100))
        return;
    const Duration delay{
        static_cast<int64_t>(prng_.below(static_cast<uint64_t>(options_.latency.ns) + 1))};
    clock_.after(delay, [this, ticket, number = transfer.number] {
        end(ticket, number, Error{ErrorCode::kCancelled, "cancelled", {}});
    });
}

void SimLink::end(Ticket ticket, uint64_t number, std::optional<Error> error) {
    Transfer& transfer = transfers_[ticket.value];
    if (!transfer.busy || transfer.ended || transfer.number != number)
        return;  // a cancellation was first, or came too late
    transfer.ended = true;
    memory_.end_write(transfer.slot, !error, transfer.expert);
    ended_.push_back({.ticket = ticket,
                      .error = std::move(error),
                      .bytes_read = options_.bytes_per_transfer,
                      .started = transfer.started,
                      .finished = clock_.now()});
    wake();
}

size_t SimLink::poll(std::span<LinkCompletion> out) {
    size_t count = 0;
    while (count < out.size() && !ended_.empty()) {
        std::swap(ended_[prng_.below(ended_.size())], ended_.back());
        out[count] = std::move(ended_.back());
        ended_.pop_back();
        transfers_[out[count].ticket.value].busy = false;
        log_.note(clock_.now(), 'd', {out[count].ticket.value, !out[count].error});
        count++;
    }
    return count;
}

void SimLink::wait(Duration timeout) {
    if (!std::exchange(woken_, false)) {
        clock_.advance(clock_.now() + timeout);
        woken_ = false;
    }
}

}  // namespace bevy
