// Time and size with their units in the type or the name.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace bevy {

struct Duration {
    int64_t ns = 0;

    friend constexpr auto operator<=>(Duration, Duration) = default;
    friend constexpr Duration operator+(Duration a, Duration b) { return {a.ns + b.ns}; }
    friend constexpr Duration operator-(Duration a, Duration b) { return {a.ns - b.ns}; }
    friend constexpr Duration operator*(Duration a, int64_t n) { return {a.ns * n}; }
    constexpr Duration& operator+=(Duration d) { return ns += d.ns, *this; }
    constexpr double seconds() const { return static_cast<double>(ns) * 1e-9; }
};

constexpr Duration microseconds(int64_t n) {
    return {n * 1'000};
}
constexpr Duration milliseconds(int64_t n) {
    return {n * 1'000'000};
}

// A point on a clock that never goes backwards; its origin is the clock's own.
struct Instant {
    int64_t ns = 0;

    friend constexpr auto operator<=>(Instant, Instant) = default;
    friend constexpr Instant operator+(Instant t, Duration d) { return {t.ns + d.ns}; }
    friend constexpr Instant operator-(Instant t, Duration d) { return {t.ns - d.ns}; }
    friend constexpr Duration operator-(Instant a, Instant b) { return {a.ns - b.ns}; }
};

constexpr uint64_t kKiB = uint64_t{1} << 10;
constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

// The smallest multiple of `step` that is not below `n`. REQUIRES: step > 0, no overflow.
constexpr uint64_t round_up(uint64_t n, uint64_t step) {
    return (n + step - 1) / step * step;
}
constexpr uint64_t round_down(uint64_t n, uint64_t step) {
    return n / step * step;
}

// Reads "4096", "512KiB", "4GiB", "1.5G", "300MB" (KB, MB, GB are powers of 1000; K, M, G and KiB,
// MiB, GiB powers of 1024). Error: kInvalidArgument that names the text.
Result<uint64_t> parse_bytes(std::string_view text);

// "3.2 GiB", "52.2 KiB", "17 B": at most four significant characters and a unit.
std::string format_bytes(uint64_t bytes);

}  // namespace bevy
