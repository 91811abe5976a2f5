// Where "now" comes from: the system in production, the simulator's virtual time in tests.
#pragma once

#include "base/units.h"

namespace bevy {

class Clock {
public:
    virtual ~Clock() = default;
    // Any thread.
    virtual Instant now() const = 0;
};

// CLOCK_MONOTONIC.
class SystemClock final : public Clock {
public:
    Instant now() const override;
};

}  // namespace bevy
