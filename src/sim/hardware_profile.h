// A machine as the simulation sees it: one link, one memory, one processor, and what work costs on
// them. Plain data; the files in profiles/hardware/ are read by cli/profiles.h.
//
// The cost of a step: launch + (bytes of its distinct experts and, if somebody advances, of the
// dense part) / memory bandwidth + pair for each (token, expert) + layer for each token that
// advances (or head, at the last stage).
#pragma once

#include <cstdint>
#include <string>

#include "base/units.h"

namespace bevy {

struct HardwareProfile {
    std::string name;
    std::string comment;  // where the numbers come from

    uint64_t link_bytes_per_second = 0;
    Duration link_latency;            // until the first byte; does not occupy the link
    uint32_t transfers_inflight = 2;  // so many latencies overlap with other transfers
    uint64_t memory_bytes_per_second = 0;
    // Part of the memory bandwidth that steps lose while bytes come over the link.
    uint32_t memory_contention_per_mille = 0;
    // The same for the rest of a step: where the processor itself moves or copies what comes.
    uint32_t processor_contention_per_mille = 0;

    Duration launch;  // of a step
    Duration pair;    // per (token, expert), for the expert of gpt-oss-20b
    Duration layer;   // per token in the dense part of a layer, for that of gpt-oss-20b
    Duration head;    // per token in the head, for that of gpt-oss-20b
};

}  // namespace bevy
