#include "base/units.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace bevy {

namespace {

struct Unit {
    std::string_view name;
    uint64_t bytes;
};

constexpr std::array kUnits = {
    Unit{"", 1},
    Unit{"B", 1},
    Unit{"K", kKiB},
    Unit{"KiB", kKiB},
    Unit{"M", kMiB},
    Unit{"MiB", kMiB},
    Unit{"G", kGiB},
    Unit{"GiB", kGiB},
    Unit{"T", kGiB * 1024},
    Unit{"TiB", kGiB * 1024},
    Unit{"KB", 1'000},
    Unit{"MB", 1'000'000},
    Unit{"GB", 1'000'000'000},
    Unit{"TB", 1'000'000'000'000},
};

}  // namespace

Result<uint64_t> parse_bytes(std::string_view text) {
    double number = 0;
    const char* end = text.data() + text.size();
    auto [rest, error] = std::from_chars(text.data(), end, number);
    std::string_view unit_name(rest, static_cast<size_t>(end - rest));
    while (unit_name.starts_with(' '))
        unit_name.remove_prefix(1);
    if (error == std::errc{} && std::isfinite(number) && number >= 0) {
        for (const Unit& unit : kUnits) {
            double bytes = number * static_cast<double>(unit.bytes);
            if (unit.name == unit_name && bytes < 9e18)
                return static_cast<uint64_t>(bytes);
        }
    }
    return fail(ErrorCode::kInvalidArgument, "'" + std::string(text) + "' is not a size",
                "write a number with an optional unit, for example 4GiB, 512MiB or 300MB");
}

std::string format_bytes(uint64_t bytes) {
    static constexpr std::array kNames = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = static_cast<double>(bytes);
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < kNames.size()) {
        value /= 1024;
        unit++;
    }
    char text[32];
    int digits = unit == 0 || value >= 100 ? 0 : value >= 10 ? 1 : 2;
    std::snprintf(text, sizeof text, "%.*f %s", digits, value, kNames[unit]);
    return text;
}

}  // namespace bevy
