// A link that moves nothing but time: transfers share a bandwidth, each has a latency of its own,
// some fail, and cancellations come through late or not at all. Everything is drawn from a seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/prng.h"
#include "sim/sim_clock.h"
#include "sim/sim_log.h"
#include "sim/sim_memory.h"
#include "storage/link.h"

namespace bevy {

struct SimLinkOptions {
    uint32_t transfers_inflight_max = 4;
    uint64_t bytes_per_transfer = 1 << 20;
    uint64_t bytes_per_second = 1'000'000'000;
    Duration latency = microseconds(80);
    Duration jitter = microseconds(40);  // at most, on top of the latency
    uint32_t fail_per_mille = 0;         // transfers that end with an error
    Instant faults_until;                // none start to fail later
    uint32_t cancel_works_percent = 50;  // cancellations that are in time
    // A cancelled transfer ends at once, and what it has not moved yet is not moved: the ones
    // behind it come earlier. Else its place in the queue stays taken.
    bool cancel_frees_link = false;
};

class SimLink final : public Link {
public:
    SimLink(const SimLinkOptions& options, uint64_t seed, SimClock& clock, SimMemory& memory,
            SimLog& log);

    uint32_t transfers_inflight_max() const override { return options_.transfers_inflight_max; }
    void start(Ticket ticket, ExpertId expert, SlotIndex slot) override;
    void cancel(Ticket ticket) override;
    size_t poll(std::span<LinkCompletion> out) override;
    // Lets virtual time pass: to the next event, at most.
    void wait(Duration timeout) override;
    void wake() override { woken_ = true; }

    // For how long bytes have been under way until `now`, latencies left out.
    Duration busy(Instant now) const { return busy_ - std::max(free_at_ - now, Duration{}); }
    // When the last byte of what has been started will have come over.
    Instant busy_until() const { return free_at_; }

private:
    struct Transfer {
        bool busy = false;  // from start() until its completion was polled
        bool ended = false;
        uint64_t number = 0;  // of all started: tells this use of the ticket from the next
        ExpertId expert;
        SlotIndex slot;
        Instant started;
        Instant begins;  // to move
        Instant moved;   // all of it; it arrives a latency later
        Duration delay;  // that latency
        bool fails = false;
        uint64_t plan = 0;  // number of the plan for its arrival that counts
    };
    void plan_arrival(Ticket ticket);
    void free_rest(Ticket ticket);
    void end(Ticket ticket, uint64_t number, std::optional<Error> error);

    const SimLinkOptions options_;
    Prng prng_;
    SimClock& clock_;
    SimMemory& memory_;
    SimLog& log_;
    std::vector<Transfer> transfers_;
    std::vector<LinkCompletion> ended_;
    Instant free_at_;
    Duration busy_;  // of all transfers that were started
    uint64_t started_ = 0;
    uint64_t plans_ = 0;
    bool woken_ = false;
};

}  // namespace bevy
