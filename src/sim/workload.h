// Who asks for what, and when: arrivals, lengths, impatient clients. Drawn from a seed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "base/prng.h"
#include "base/units.h"

namespace bevy {

// One client of the engine.
struct SimClient {
    Instant arrival;
    std::vector<TokenId> prompt = {};
    bool reuse_prompt = false;  // GenerationRequest::reuse_prompt
    uint32_t max_tokens = 1;
    std::optional<uint32_t> stop_after;    // its sink wants no more than this many tokens
    std::optional<Instant> cancel_at;      // somebody else gives up
    std::optional<uint32_t> cancel_after;  // the sink itself gives up after this many tokens
};

struct WorkloadOptions {
    uint32_t clients = 1;
    Duration arrival_gap_max;  // between one client and the next; zero: all at once
    uint32_t prompt_tokens_max = 1;
    uint32_t reply_tokens_max = 1;
    uint32_t reuse_percent = 0;   // of the clients: they begin as an earlier one did
    uint32_t stop_percent = 0;    // of the clients
    uint32_t cancel_percent = 0;  // of the clients
    Instant cancels_until;        // nobody gives up later
};

std::vector<SimClient> draw_workload(const WorkloadOptions& options, Prng& prng);

}  // namespace bevy
