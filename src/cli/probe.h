// Short measurements of what this machine can move: the bounds that bevy inspect states.
#pragma once

#include <cstdint>
#include <string>

#include "base/error.h"
#include "base/units.h"
#include "cli/opened_model.h"
#include "cli/options.h"

namespace bevy {

struct LinkProbe {
    double bytes_per_second = 0;
    bool direct = false;  // measured past the page cache
};

// Reads experts of the model in scattered order, as a run would, for about `duration`.
Result<LinkProbe> probe_link(const OpenedModel& model, const SessionOptions& options,
                             Duration duration);

// The processor as the kernel names it.
std::string processor_name();

// Bytes per second that `threads` threads read from memory, measured for about `duration`.
double probe_memory(uint32_t threads, Duration duration);

}  // namespace bevy
