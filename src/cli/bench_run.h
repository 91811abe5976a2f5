// One measurement: a model opened with some settings, as many requests as run at once, all started
// together, and a window in which everybody generates.
//
// The window begins when `warmup` tokens per request have been generated and ends when `tokens`
// more per request have, both counted over all requests: nobody has ended before, so the number of
// requests is the same throughout. Its numbers come from the engine's own counters.
// Threads: one; the engine's calls in between are this file's business.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "base/units.h"
#include "cli/opened_model.h"
#include "cli/options.h"
#include "cli/session.h"
#include "engine/stats.h"

namespace bevy {

struct BenchLoad {
    std::vector<std::vector<TokenId>> prompts;  // request i has prompt i modulo their number
    uint32_t tokens = 0;                        // at least 1
    uint32_t warmup = 0;                        // at least 1
};

struct BenchResult {
    uint32_t slots = 0;
    uint32_t experts = 0;
    uint64_t expert_cache_bytes = 0;
    uint64_t tokens = 0;  // generated in the window
    Duration window;
    EngineStats stats;  // of the window
    // From the start of all requests to the first token of each.
    Duration first_token_p50;
    Duration first_token_max;
    double prompt_tokens_per_second = 0;  // of all requests, until the last has its first token
    // Between two tokens of the same request, of those in the window.
    Duration token_gap_p50;
    Duration token_gap_p99;
    double fairness_spread = 0;  // (most - least) / mean of the requests' tokens in the window
    uint64_t peak_resident_bytes = 0;
    // Bytes per second of reads alone, measured right before.
    double link_bytes_per_second = 0;
    // By request: what it generated; the same settings or others, it must be the same.
    std::vector<std::vector<TokenId>> outputs;

    double tokens_per_second() const;
    // What the window would have taken if only its reads, at the speed measured before, or only its
    // steps had to be waited for, as a part of what it took, 0 .. 1 (above only by noise).
    double of_bound() const;
};

// The context that each request needs for the load.
uint32_t bench_context(const BenchLoad& load);

// Opens, measures, closes. `model` is the one that `options` names, for measuring its reads alone;
// `options.context` is that of all requests. Errors: those of
// Session::open(); kInvalidArgument when a request runs out of context in the window; kIo when an
// expert can't be read or the run is interrupted.
Result<BenchResult> run_bench(const OpenedModel& model, const SessionOptions& options,
                              const BenchLoad& load, const SessionEvents& events);

// Prompts of random tokens, the same every time; as many as requests are likely to run at once.
std::vector<std::vector<TokenId>> random_prompts(const LlamaVocabulary& vocabulary,
                                                 uint32_t tokens);

}  // namespace bevy
