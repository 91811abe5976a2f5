// Keeps finished things for a random number of polls, so that they come out late and in another
// order. For the faulty wrappers. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace bevy {

template <class T>
class HoldBack {
public:
    void add(T item, uint64_t polls) { held_.push_back({std::move(item), polls}); }
    bool empty() const { return held_.empty(); }

    // One poll has passed: stores what is due in `out` and returns how many.
    size_t release(std::span<T> out) {
        size_t count = 0;
        std::vector<Held> kept;
        for (Held& held : held_) {
            if (held.polls > 0) {
                --held.polls;
            } else if (count < out.size()) {
                out[count++] = std::move(held.item);
                continue;
            }
            kept.push_back(std::move(held));
        }
        held_ = std::move(kept);
        return count;
    }

private:
    struct Held {
        T item;
        uint64_t polls;
    };
    std::vector<Held> held_;
};

}  // namespace bevy
