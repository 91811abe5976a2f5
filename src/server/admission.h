// How many generations are under way, and whether one more is let in: the limit on all that waits.
// Also how many replies are still being written, which may take longer.
//
// A generation counts from its submission until the engine has let go of it, whether its reply was
// read or not, so slow readers take no place. Any thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <mutex>

#include "engine/generation.h"

namespace bevy {

class Admission {
public:
    // Of all generations that have ended.
    struct Totals {
        uint64_t tokens_prompt = 0;  // computed, not reused
        uint64_t tokens_generated = 0;
        Duration prefill;  // the sums of each one's own time; several may run at once
        Duration decode;
        uint32_t sequence_tokens_max = 0;  // of one, prompt and reply together
    };
    // `running_max` generate at once, `waiting_max` more may wait.
    Admission(uint32_t running_max, uint32_t waiting_max)
        : running_max_(running_max), waiting_max_(waiting_max) {}

    enum class Answer { kCome, kFull, kClosed };
    // All of `count`, or none.
    Answer enter(uint32_t count) {
        const std::lock_guard lock(mutex_);
        if (closed_)
            return Answer::kClosed;
        if (count > running_max_ + waiting_max_ - inside_)
            return Answer::kFull;
        inside_ += count;
        return Answer::kCome;
    }
    // `count` that came in were never submitted.
    void turn_back(uint32_t count) {
        const std::lock_guard lock(mutex_);
        inside_ -= count;
    }
    // One has ended.
    void leave(const RequestTimings& timings) {
        const std::lock_guard lock(mutex_);
        --inside_;
        totals_.tokens_prompt += timings.tokens_prompt - timings.tokens_reused;
        totals_.tokens_generated += timings.tokens_generated;
        totals_.prefill += timings.prefill;
        totals_.decode += timings.decode;
        totals_.sequence_tokens_max =
            std::max(totals_.sequence_tokens_max, timings.tokens_prompt + timings.tokens_generated);
    }
    Totals totals() const {
        const std::lock_guard lock(mutex_);
        return totals_;
    }
    void reply_begins() {
        const std::lock_guard lock(mutex_);
        ++replies_;
    }
    void reply_ends() {
        const std::lock_guard lock(mutex_);
        --replies_;
    }
    // Nobody comes in any more.
    void close() {
        const std::lock_guard lock(mutex_);
        closed_ = true;
    }
    bool closed() const {
        const std::lock_guard lock(mutex_);
        return closed_;
    }
    uint32_t inside() const {
        const std::lock_guard lock(mutex_);
        return inside_;
    }
    uint32_t replies() const {
        const std::lock_guard lock(mutex_);
        return replies_;
    }
    uint32_t capacity() const { return running_max_ + waiting_max_; }

private:
    const uint32_t running_max_;
    const uint32_t waiting_max_;
    mutable std::mutex mutex_;
    Totals totals_;
    uint32_t inside_ = 0;
    uint32_t replies_ = 0;
    bool closed_ = false;
};

}  // namespace bevy
