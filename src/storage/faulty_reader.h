// A reader that misbehaves as disks and kernels do, reproducibly from a seed: for tests of whatever
// resumes and retries.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/expert_table.h"
#include "storage/file_reader.h"

namespace bevy {

struct ReaderFaults {
    uint64_t seed = 1;
    // Chances in 1000, each at most once per file offset, so that trying again helps.
    uint32_t short_per_mille =
        0;  // fewer bytes than asked for; the rest of the buffer is scribbled on
    uint32_t error_per_mille = 0;      // EIO
    uint32_t interrupt_per_mille = 0;  // EINTR or EAGAIN
    uint32_t hold_polls_max = 0;       // results come up to this many polls late
    std::vector<Extent> bad_ranges;    // reads that touch one always fail with EIO
};

struct ReaderFaultCounts {
    uint64_t shorts = 0;
    uint64_t errors = 0;
    uint64_t interrupts = 0;
};

// `counts`, if given, outlives the reader and is written by its thread.
std::unique_ptr<FileReader> make_faulty_reader(std::unique_ptr<FileReader> reader,
                                               ReaderFaults faults,
                                               ReaderFaultCounts* counts = nullptr);

}  // namespace bevy
