// Wakes a thread that waits for news from several others. Any thread.
#pragma once

#include <condition_variable>
#include <mutex>

#include "base/units.h"

namespace bevy {

class ChangeSignal {
public:
    void notify();
    // Returns when notify() was called since the last wait(), or after `timeout`.
    void wait(Duration timeout);

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool pending_ = false;
};

}  // namespace bevy
