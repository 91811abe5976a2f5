// What a simulation remembers about itself: a hash over everything that happened, to compare two
// runs, and the rules that were broken.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/units.h"
#include "sim/sim_model.h"

namespace bevy {

class SimLog {
public:
    void note(Instant at, char what, std::initializer_list<uint64_t> numbers) {
        hash_ = sim_mix(hash_, static_cast<uint64_t>(at.ns), static_cast<uint64_t>(what));
        for (uint64_t number : numbers)
            hash_ = sim_mix(hash_, number);
    }
    // A rule was broken. Only the first few are kept: the rest usually follow from them.
    void violation(std::string text) {
        if (violations_.size() < kViolationsMax)
            violations_.push_back(std::move(text));
    }

    uint64_t hash() const { return hash_; }
    const std::vector<std::string>& violations() const { return violations_; }

private:
    static constexpr size_t kViolationsMax = 10;
    uint64_t hash_ = 0;
    std::vector<std::string> violations_;
};

}  // namespace bevy
