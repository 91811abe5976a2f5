// Owns an anonymous mapping whose start is aligned to 2 MiB: slots, bounce buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace bevy {

class AlignedMemory {
public:
    AlignedMemory() = default;
    // Zeroed memory, made resident page by page when touched; huge pages where the kernel has them.
    // `purpose` names it in errors. Error: kBudget. `bytes` may be 0.
    static Result<AlignedMemory> create(uint64_t bytes, std::string_view purpose);

    AlignedMemory(AlignedMemory&& other) noexcept : memory_(std::exchange(other.memory_, {})) {}
    AlignedMemory& operator=(AlignedMemory&& other) noexcept {
        std::swap(memory_, other.memory_);
        return *this;
    }
    AlignedMemory(const AlignedMemory&) = delete;
    AlignedMemory& operator=(const AlignedMemory&) = delete;
    ~AlignedMemory();

    // Makes every page resident now. Error: kBudget.
    Status populate();
    uint64_t resident_bytes() const;

    std::span<std::byte> bytes() const { return memory_; }

private:
    std::span<std::byte> memory_;  // whole pages
};

}  // namespace bevy
