#include "sim/sim_clock.h"

#include <algorithm>

namespace bevy {

void SimClock::at(Instant at, std::function<void()> event) {
    events_.emplace(std::pair(std::max(at, now_).ns, events_added_++), std::move(event));
}

void SimClock::advance(Instant limit) {
    if (events_.empty() || events_.begin()->first.first > limit.ns) {
        now_ = std::max(now_, limit);
        return;
    }
    auto node = events_.extract(events_.begin());
    now_ = Instant{node.key().first};
    node.mapped()();
}

}  // namespace bevy
