#include "core/kept_prefixes.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "base/assert.h"

namespace bevy {

KeptPrefixes::KeptPrefixes(uint32_t sequences, uint32_t chunk_tokens)
    : chunk_tokens_(chunk_tokens), rows_(sequences) {}

uint32_t KeptPrefixes::shared(const Row& row, std::span<const TokenId> prompt) const {
    if (prompt.empty())
        return 0;
    const auto end = std::ranges::mismatch(row.tokens, prompt.first(prompt.size() - 1)).in1;
    const auto tokens = static_cast<uint32_t>(end - row.tokens.begin());
    return tokens - tokens % chunk_tokens_;
}

KeptPrefixes::Choice KeptPrefixes::choose(std::span<const TokenId> prompt,
                                          std::span<const SeqIndex> free) const {
    BEVY_ASSERT(!free.empty());
    // Greater is better.
    auto saves_most = [&](SeqIndex seq) {
        const Row& row = rows_[seq.value];
        return std::tuple(shared(row, prompt), ~row.tokens.size(), ~row.used);
    };
    auto missed_least = [&](SeqIndex seq) {
        const Row& row = rows_[seq.value];
        return std::tuple(row.tokens.empty(), ~row.used);
    };
    auto pays = [&](SeqIndex seq) {
        const size_t saved = shared(rows_[seq.value], prompt);
        return saved > 0 && saved >= rows_[seq.value].tokens.size() - saved;
    };
    std::vector<SeqIndex> candidates;
    std::ranges::copy_if(free, std::back_inserter(candidates), pays);
    const SeqIndex seq = candidates.empty() ? std::ranges::max(free, {}, missed_least)
                                            : std::ranges::max(candidates, {}, saves_most);
    return {seq, shared(rows_[seq.value], prompt)};
}

void KeptPrefixes::start(SeqIndex seq, uint32_t tokens) {
    Row& row = rows_[seq.value];
    BEVY_ASSERT(tokens <= row.tokens.size() && tokens % chunk_tokens_ == 0);
    row.tokens.resize(tokens);
    row.used = ++uses_;
}

void KeptPrefixes::append(SeqIndex seq, std::span<const TokenId> chunk) {
    BEVY_ASSERT(chunk.size() == chunk_tokens_);
    rows_[seq.value].tokens.append_range(chunk);
}

void KeptPrefixes::end(SeqIndex seq) {
    rows_[seq.value].used = ++uses_;
}

}  // namespace bevy
