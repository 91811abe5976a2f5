#include "base/clock.h"

#include <ctime>

namespace bevy {

Instant SystemClock::now() const {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return {int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec};
}

}  // namespace bevy
