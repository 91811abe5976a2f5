// Which beginnings of prompts still lie in the KV cache, by sequence, so that a later prompt that
// begins alike need not compute them again.
//
// Only whole chunks count, computed as one pass each: a token that was decoded, or that was part of
// a shorter pass, has the same KV rows but for rounding, and the reply must not depend on who came
// before. A chunk is a run of chunk_tokens tokens at a multiple of chunk_tokens, as prefill cuts
// them. Pure; one thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"

namespace bevy {

class KeptPrefixes {
public:
    KeptPrefixes(uint32_t sequences, uint32_t chunk_tokens);

    struct Choice {
        SeqIndex seq;
        uint32_t tokens = 0;  // of the prompt that need not be computed; whole chunks
    };
    // Where a request should run, given what is free (ascending, not empty). The sequence that
    // shares the longest beginning, unless that would lose more tokens than it saves; else one that
    // keeps nothing; else the one that nobody has used for longest, with what it happens to share.
    // The last token of a prompt is never taken from a kept one: its logits are needed. `prompt`:
    // empty if nothing may be reused.
    Choice choose(std::span<const TokenId> prompt, std::span<const SeqIndex> free) const;

    // A request begins at `seq`, after the first `tokens` of what is kept there; the rest is void.
    void start(SeqIndex seq, uint32_t tokens);
    // The next whole chunk at `seq` has been computed in one pass.
    void append(SeqIndex seq, std::span<const TokenId> chunk);
    // Nobody runs at `seq` any more.
    void end(SeqIndex seq);

    std::span<const TokenId> kept(SeqIndex seq) const { return rows_[seq.value].tokens; }

private:
    struct Row {
        std::vector<TokenId> tokens;
        uint64_t used = 0;  // when a request last began or ended here
    };
    uint32_t shared(const Row& row, std::span<const TokenId> prompt) const;

    const uint32_t chunk_tokens_;
    std::vector<Row> rows_;  // by SeqIndex
    uint64_t uses_ = 0;
};

}  // namespace bevy
