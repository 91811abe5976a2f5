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
    const Duration transfer{static_cast<int64_t>(options_.bytes_per_transfer * 1'000'000'000 /
                                                 options_.bytes_per_second)};
    const Instant begins = std::max(free_at_, now);
    free_at_ = begins + transfer;
    busy_ += transfer;
    const Duration jitter{
        static_cast<int64_t>(prng_.below(static_cast<uint64_t>(options_.jitter.ns) + 1))};
    transfers_[ticket.value] = {
        .busy = true,
        .number = ++started_,
        .expert = expert,
        .slot = slot,
        .started = now,
        .begins = begins,
        .moved = free_at_,
        .delay = options_.latency + jitter,
        .fails = now < options_.faults_until && prng_.chance(options_.fail_per_mille, 1000)};
    plan_arrival(ticket);
}

void SimLink::plan_arrival(Ticket ticket) {
    Transfer& transfer = transfers_[ticket.value];
    transfer.plan = ++plans_;
    clock_.at(transfer.moved + transfer.delay, [this, ticket, plan = transfer.plan] {
        const Transfer& arrived = transfers_[ticket.value];
        if (arrived.plan != plan)
            return;  // it was planned anew
        std::optional<Error> error;
        if (arrived.fails)
            error = Error{ErrorCode::kIo, "the simulated disk failed", {}};
        end(ticket, arrived.number, std::move(error));
    });
}

void SimLink::free_rest(Ticket ticket) {
    const Transfer& gone = transfers_[ticket.value];
    const Instant now = clock_.now();
    const Duration rest = gone.moved - std::max(gone.begins, std::min(now, gone.moved));
    if (rest.ns <= 0)
        return;
    free_at_ = free_at_ - rest;
    busy_ = busy_ - rest;
    for (uint32_t i = 0; i < transfers_.size(); i++) {
        Transfer& behind = transfers_[i];
        if (!behind.busy || behind.ended || behind.begins < gone.moved)
            continue;
        behind.begins = behind.begins - rest;
        behind.moved = behind.moved - rest;
        plan_arrival(Ticket(i));
    }
}

void SimLink::cancel(Ticket ticket) {
    log_.note(clock_.now(), 'x', {ticket.value});
    const Transfer& transfer = transfers_[ticket.value];
    if (!transfer.busy) {
        log_.violation("a cancellation of ticket " + std::to_string(ticket.value) +
                       ", which is not in use");
        return;
    }
    if (options_.cancel_frees_link && !transfer.ended) {
        free_rest(ticket);
        clock_.after({}, [this, ticket, number = transfer.number] {
            end(ticket, number, Error{ErrorCode::kCancelled, "cancelled", {}});
        });
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
