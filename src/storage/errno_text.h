// The system's words for an errno value. std::strerror is not safe between threads.
#pragma once

#include <string>
#include <system_error>

namespace bevy {

inline std::string errno_text(int number) {
    return std::generic_category().message(number);
}

}  // namespace bevy
