#include "base/change_signal.h"

#include <chrono>

namespace bevy {

void ChangeSignal::notify() {
    {
        const std::lock_guard lock(mutex_);
        pending_ = true;
    }
    changed_.notify_one();
}

void ChangeSignal::wait(Duration timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::nanoseconds(timeout.ns), [this] { return pending_; });
    pending_ = false;
}

}  // namespace bevy
