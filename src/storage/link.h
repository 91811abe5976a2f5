// The path from the slow tier to the slots, as the engine sees it: "bring this expert into that
// slot".
//
// The engine names experts and slots; where their bytes lie, and whether a slot is host memory, is
// the implementation's business. FileLink reads model files into host slots; the simulator's link
// moves nothing but time; a device link will copy from host memory to the GPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/error.h"
#include "base/ids.h"
#include "base/units.h"

namespace bevy {

struct LinkCompletion {
    Ticket ticket;
    std::optional<Error> error;  // empty: the slot now holds the expert's bytes
    uint64_t bytes_read = 0;     // from the slow tier, including widening to disk blocks
    Instant started;             // when the first byte was asked for
    Instant finished;            // when the last one had arrived
};

// All functions are for the engine thread, except wake().
class Link {
public:
    virtual ~Link() = default;

    // Most transfers that may be in flight at once; tickets are 0 .. max-1 and chosen by the
    // caller.
    virtual uint32_t transfers_inflight_max() const = 0;

    // Starts filling `slot` with `expert`. REQUIRES: `ticket` is not in flight, and the slot stays
    // untouched by everybody else until its completion has been polled. Never blocks on the disk.
    virtual void start(Ticket ticket, ExpertId expert, SlotIndex slot) = 0;

    // Asks to give up on a transfer. A completion still comes (an error kCancelled, or success when
    // it was too late), and only then is the slot the caller's again.
    virtual void cancel(Ticket ticket) = 0;

    // Stores finished transfers in `out` and returns how many; does not block.
    virtual size_t poll(std::span<LinkCompletion> out) = 0;

    // Sleeps until a transfer finishes, wake() is called, or `timeout` has passed. A wake() that
    // came before the call is not lost.
    virtual void wait(Duration timeout) = 0;

    // Ends a current or the next wait(). Any thread; async-signal-safe.
    virtual void wake() = 0;
};

}  // namespace bevy
