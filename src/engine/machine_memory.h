// What the machine and the control group really leave to this process: the default budget.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/error.h"

namespace bevy {

struct MachineMemory {
    uint64_t available_bytes = 0;  // MemAvailable of /proc/meminfo
    std::optional<uint64_t>
        group_limit_bytes;  // the tightest limit of this control group and its parents
    std::optional<uint64_t>
        group_left_bytes;       // under the tightest: limit - use + droppable file cache
    uint64_t budget_bytes = 0;  // the smaller one, less a margin for everybody else
    std::string source;         // "MemAvailable" or "control group limit"
};

// Reads /proc and /sys below `root` ("" in production). kUnsupported when /proc/meminfo says
// nothing.
Result<MachineMemory> detect_machine_memory(const std::string& root = {});

}  // namespace bevy
