#include "server/random_id.h"

#include <random>
#include <string_view>

namespace bevy {

std::string random_id() {
    constexpr std::string_view kLetters =
        "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    thread_local std::random_device device;
    std::uniform_int_distribution<size_t> any(0, kLetters.size() - 1);
    std::string id;
    for (int i = 0; i < 32; ++i)
        id += kLetters[any(device)];
    return id;
}

}  // namespace bevy
