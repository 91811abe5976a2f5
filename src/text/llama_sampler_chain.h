// Samplers made of libllama's parts, in llama-server's default order: penalties, dry, top_n_sigma,
// top_k, typical, top_p, min_p, xtc, temperature; then a draw with the request's seed.
//
// Deterministic: the same seed, history and logits give the same tokens. Samplers hold no memory of
// the size of the vocabulary; the candidates lie in one buffer per thread. Greedy sampling is one
// pass over the logits, without sorting or copying, unless penalties are on.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/ids.h"
#include "text/llama_vocabulary.h"
#include "text/sampler.h"

namespace bevy {

// `history`: the prompt, which penalties count as text already written. `context_tokens` is what -1
// stands for in repeat_last_n and dry_penalty_last_n. The sampler refers to `vocabulary`, which
// must outlive it. Errors: kInvalidArgument, from validate() or for a grammar that does not parse.
Result<std::unique_ptr<Sampler>> make_sampler(const LlamaVocabulary& vocabulary,
                                              const SamplingParams& params, uint32_t context_tokens,
                                              std::span<const TokenId> history);

}  // namespace bevy
