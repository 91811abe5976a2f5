// Logits to token. One sampler per request; its seed makes the request reproducible by itself.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"

namespace bevy {

// Names, defaults and order of application as in llama-server.
struct SamplingParams {
    uint32_t seed = 0xFFFFFFFF;   // 0xFFFFFFFF: a random one is drawn
    float temperature = 0.8f;     // <= 0: greedy
    int32_t top_k = 40;           // <= 0: whole vocabulary
    float top_p = 0.95f;          // 1: off
    float min_p = 0.05f;          // 0: off
    float typical_p = 1.0f;       // 1: off
    int32_t repeat_last_n = 64;   // 0: off, -1: context size
    float repeat_penalty = 1.0f;  // 1: off
    float presence_penalty = 0.0f;
    float frequency_penalty = 0.0f;
    std::string grammar;  // GBNF; empty: none
};

// Engine thread.
class Sampler {
public:
    virtual ~Sampler() = default;
    // Chooses the next token and remembers it. `logits` has one float per vocabulary entry.
    virtual TokenId sample(std::span<const float> logits) = 0;
};

}  // namespace bevy
