// A small seedable generator whose sequence is the same on every machine and compiler
// (std distributions are not). SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom
// number generators", 2014.
#pragma once

#include <cstdint>

namespace bevy {

class Prng {
public:
    explicit constexpr Prng(uint64_t seed) : state_(seed) {}

    constexpr uint64_t next() {
        uint64_t z = (state_ += 0x9e3779b97f4a7c15);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }

    // Uniform in [0, bound). REQUIRES: bound > 0. The bias is below bound / 2^64.
    constexpr uint64_t below(uint64_t bound) {
        __extension__ using Wide = unsigned __int128;
        return static_cast<uint64_t>((static_cast<Wide>(next()) * bound) >> 64);
    }
    // Uniform in [low, high], both included.
    constexpr uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
    // True with probability numerator / denominator.
    constexpr bool chance(uint64_t numerator, uint64_t denominator) {
        return below(denominator) < numerator;
    }

private:
    uint64_t state_;
};

}  // namespace bevy
