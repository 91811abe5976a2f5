// Virtual time: a clock that stands still until somebody waits, and the events that happen
// meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/clock.h"
#include "base/units.h"

namespace bevy {

// One thread.
class SimClock final : public Clock {
public:
    Instant now() const override { return now_; }

    // Calls `event` when time has come to `at`, or at once in the next advance() if that is past.
    // Events of the same instant happen in the order in which they were added.
    void at(Instant at, std::function<void()> event);
    void after(Duration delay, std::function<void()> event) { at(now_ + delay, std::move(event)); }

    // Moves to the next event, if it is not later than `limit`, and lets it happen; else to
    // `limit`.
    void advance(Instant limit);

private:
    Instant now_;
    uint64_t events_added_ = 0;
    std::map<std::pair<int64_t, uint64_t>, std::function<void()>> events_;
};

}  // namespace bevy
