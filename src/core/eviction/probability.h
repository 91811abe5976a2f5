// Probabilities as integers, and the two curves that combine them.
//
// That at least one of several independent events happens has the probability 1 - product(1 - p).
// A product can't be kept up to date when a factor leaves it (it may have been near zero), a sum of
// integers can: so -log2(1 - p) is what is added and subtracted, and the sum is turned back into a
// probability. Both curves are tables that the compiler computes with integers, so they are the
// same everywhere; between their points they are straight lines.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace bevy {

// Units of a probability, and of what 1 - product(1 - p) yields, where more digits matter.
constexpr uint32_t kProbabilityOne = 1u << 16;
constexpr uint32_t kFineProbabilityOne = 1u << 30;
// No single event counts as more certain than this, or the logarithm would have no end.
constexpr uint32_t kProbabilityMax = kProbabilityOne - kProbabilityOne / 64;
// Units of a binary logarithm.
constexpr uint32_t kBit = 1u << 20;

namespace probability_tables {

constexpr uint32_t kComplementStep = 64;
constexpr uint32_t kPowerSteps = 256;  // per bit

// -log2(1 - i / 1024) in 1 / kBit: a bit of the fraction for each squaring.
constexpr uint32_t complement_point(uint32_t i) {
    uint64_t mantissa = uint64_t{1024 - i} << 21;  // 31 bits behind the point
    uint32_t whole = 0;
    for (; mantissa < (uint64_t{1} << 31); mantissa <<= 1)
        whole++;
    uint32_t fraction = 0;
    for (uint32_t bit = kBit / 2; bit > 0; bit /= 2) {
        mantissa = (mantissa * mantissa) >> 31;
        if (mantissa >> 32) {
            mantissa >>= 1;
            fraction += bit;
        }
    }
    return whole * kBit - fraction;
}

constexpr uint64_t square_root(uint64_t n) {
    uint64_t root = 0;
    for (uint64_t bit = uint64_t{1} << 31; bit > 0; bit /= 2) {
        if ((root + bit) * (root + bit) <= n)
            root += bit;
    }
    return root;
}

constexpr auto kComplementBits = [] {
    std::array<uint32_t, kProbabilityMax / kComplementStep + 2> table{};
    for (uint32_t i = 0; i < table.size(); i++)
        table[i] = complement_point(i);
    return table;
}();

// 2^(-i / kPowerSteps) in 1 / kFineProbabilityOne, as a product of 2^(-1/2), 2^(-1/4), ...
constexpr auto kPowers = [] {
    std::array<uint32_t, kPowerSteps + 1> table{};
    for (uint32_t i = 0; i < kPowerSteps; i++) {
        uint64_t power = uint64_t{1} << 31;  // 31 bits behind the point
        uint64_t factor = uint64_t{1} << 30;
        for (uint32_t bit = kPowerSteps / 2; bit > 0; bit /= 2) {
            factor = square_root(factor << 31);
            if (i & bit)
                power = (power * factor) >> 31;
        }
        table[i] = static_cast<uint32_t>((power + 1) / 2);
    }
    table[kPowerSteps] = kFineProbabilityOne / 2;
    return table;
}();

}  // namespace probability_tables

// -log2(1 - p) in 1 / kBit, for p in 1 / kProbabilityOne; as if p were at most kProbabilityMax.
constexpr uint32_t complement_bits(uint32_t probability) {
    using namespace probability_tables;
    uint32_t p = std::min(probability, kProbabilityMax);
    uint32_t low = kComplementBits[p / kComplementStep];
    uint32_t high = kComplementBits[p / kComplementStep + 1];
    return low + (high - low) * (p % kComplementStep) / kComplementStep;
}

// 2^-bits in 1 / kFineProbabilityOne, for bits in 1 / kBit.
constexpr uint32_t power_of_half(uint64_t bits) {
    using namespace probability_tables;
    constexpr uint32_t kStep = kBit / kPowerSteps;
    uint64_t whole = bits / kBit;
    if (whole >= 32)
        return 0;
    auto fraction = static_cast<uint32_t>(bits % kBit);
    uint32_t high = kPowers[fraction / kStep];
    uint32_t low = kPowers[fraction / kStep + 1];
    uint64_t below = uint64_t{high - low} * (fraction % kStep) / kStep;
    return (high - static_cast<uint32_t>(below)) >> whole;
}

}  // namespace bevy
