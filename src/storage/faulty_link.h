// A link whose transfers come late, in another order, or fail, reproducibly from a seed: for tests
// of the engine on real files.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "storage/link.h"

namespace bevy {

struct LinkFaults {
    uint64_t seed = 1;
    uint32_t hold_polls_max = 0;    // completions come up to this many polls late
    Duration delay_max;             // and up to this much real time late
    uint32_t fail_per_mille = 0;    // of transfers that would succeed, with kIo
    std::vector<ExpertId> failing;  // always fail, with kIo
};

// Completions that are held keep their slot: nothing changes in it, but it isn't the caller's yet.
std::unique_ptr<Link> make_faulty_link(std::unique_ptr<Link> link, LinkFaults faults);

}  // namespace bevy
