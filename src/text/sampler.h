// Logits to token. One sampler per request; its seed makes the request reproducible by itself.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"

namespace bevy {

// Added to a token's logit before anything else is done with it; minus infinity: never chosen.
struct LogitBias {
    TokenId token = 0;
    float bias = 0.0f;
};

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
    float top_n_sigma = -1.0f;     // standard deviations below the best logit; <= 0: off
    float xtc_probability = 0.0f;  // 0: off
    float xtc_threshold = 0.1f;    // above 0.5: off
    float dry_multiplier = 0.0f;   // 0: off
    float dry_base = 1.75f;
    int32_t dry_allowed_length = 2;
    int32_t dry_penalty_last_n = 64;  // 0: off, -1: context size
    std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
    bool ignore_end_of_generation = false;  // true: tokens that end a text are never chosen
    std::string grammar;                    // GBNF; empty: none
    std::vector<LogitBias> logit_bias;
    // How many of the most likely tokens to report with each one; nothing: report nothing.
    std::optional<uint32_t> n_probs;
};

// Refuses values that no sampler can work with: not finite, or out of range. The message names the
// field as a request body spells it, the value and the range.
Status validate(const SamplingParams& params);

struct TokenProbability {
    TokenId token = 0;
    float log_probability = 0.0f;
};

// By the model's own logits: before biases, penalties, temperature and whatever else chose.
struct TokenProbabilities {
    TokenProbability chosen;
    std::vector<TokenProbability> top;  // the most likely first
};

// Engine thread.
class Sampler {
public:
    virtual ~Sampler() = default;
    // Chooses the next token and remembers it. `logits` has one float per vocabulary entry; a NaN
    // counts as impossible. When nothing is possible, the answer is a token that ends the text.
    virtual TokenId sample(std::span<const float> logits) = 0;
    // Of the token that sample() returned last, until the next call. Null: not asked for.
    virtual const TokenProbabilities* probabilities() const { return nullptr; }
};

}  // namespace bevy
