// Writes a model that replays recorded routes in any engine, with random experts of full size: the
// load of a real model, and an output that is known beforehand.
//
// The residual stream begins with one dimension, its code, for every (request, step) of the trace.
//   - The embedding of a token is one-hot at its code.
//   - The rows of the attention's output and of the experts' down matrices (and their biases) are
//     zero in the codes' dimensions: the code passes every layer, and all others stay exactly zero.
//     What attention and experts compute goes to the free dimensions behind them.
//   - A router has weights in the codes' dimensions only: for every code, those of the experts that
//     the trace names there, falling in the trace's order. All other logits are exactly zero.
//   - The head maps a code to the token of the next step, the only logit that is not zero.
// So routes and greedy output follow the trace by construction: no rounding of weights, activations
// or sums in the free dimensions can change them, as long as the code stands out enough from what
// has gathered in the free dimensions to survive an eight-bit rounding of its block. The size of
// the embedding sees to that: the code keeps at least half of the stream's energy to the end.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/route_trace.h"
#include "model/random_model.h"
#include "model/replay_chain.h"

namespace bevy {

struct ReplayModelSpec {
    // A random model of the wanted shape with the tensors' names of libllama, an own head and
    // experts in every layer. Its vocabulary may be 0: as many tokens as the chains need.
    RandomModelSpec model;
    const RouteTrace* trace = nullptr;  // outlives the call
    uint32_t steps = 0;                 // per chain
    uint32_t skip = 0;               // tokens at the beginning of every request that are left out
    std::vector<uint32_t> requests;  // of the trace, one per chain
    std::string source;              // of the routes, for general.description
};

// `count` requests with at least `tokens` tokens, drawn with `seed`, in the trace's order. Error:
// kInvalidArgument (there are not so many; says how many there are).
Result<std::vector<uint32_t>> choose_requests(const RouteTrace& trace, uint32_t count,
                                              uint32_t tokens, uint64_t seed);

inline ReplayChains replay_chains(const ReplayModelSpec& spec) {
    return {static_cast<uint32_t>(spec.requests.size()), spec.steps};
}

// Whether the codes leave some free dimensions. Error: kInvalidArgument.
Status check_replay_width(const ReplayModelSpec& spec, int64_t embedding);

// Tokens that a vocabulary needs at least.
uint32_t replay_vocabulary_min(const ReplayChains& chains);

// Errors: as write_random_model(), kInvalidArgument also when the codes do not fit the embedding.
Result<RandomModelReport> write_replay_model(const ReplayModelSpec& spec);

}  // namespace bevy
