// Assertions on invariants of our own making. They stay on in release builds; user input never
// reaches one (see error.h).
#pragma once

namespace bevy {

// Prints the failed condition with its place and aborts.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);

}  // namespace bevy

#define BEVY_ASSERT(condition)                                        \
    do {                                                              \
        if (!(condition)) [[unlikely]]                                \
            ::bevy::assertion_failed(#condition, __FILE__, __LINE__); \
    } while (false)
