#include "core/kept_prefixes.h"

#include <gtest/gtest.h>

#include <numeric>

namespace bevy {
namespace {

constexpr uint32_t kChunk = 4;

std::vector<TokenId> tokens(uint32_t count, TokenId first = 0) {
    std::vector<TokenId> result(count);
    std::iota(result.begin(), result.end(), first);
    return result;
}

std::vector<SeqIndex> all(uint32_t count) {
    std::vector<SeqIndex> result;
    for (uint32_t i = 0; i < count; i++)
        result.emplace_back(i);
    return result;
}

// A request that computes whole chunks of `prompt` from scratch, and ends.
void run(KeptPrefixes& kept, uint32_t seq, const std::vector<TokenId>& prompt) {
    kept.start(SeqIndex(seq), 0);
    for (size_t first = 0; first + kChunk <= prompt.size(); first += kChunk)
        kept.append(SeqIndex(seq), std::span(prompt).subspan(first, kChunk));
    kept.end(SeqIndex(seq));
}

TEST(KeptPrefixes, SharesWholeChunksOnly) {
    KeptPrefixes kept(1, kChunk);
    run(kept, 0, tokens(12));
    auto prompt = tokens(20);
    EXPECT_EQ(kept.choose(prompt, all(1)).tokens, 12u);
    prompt[11] = 99;
    EXPECT_EQ(kept.choose(prompt, all(1)).tokens, 8u);
    prompt[0] = 99;
    EXPECT_EQ(kept.choose(prompt, all(1)).tokens, 0u);
}

TEST(KeptPrefixes, LeavesTheLastTokenToCompute) {
    KeptPrefixes kept(1, kChunk);
    run(kept, 0, tokens(12));
    EXPECT_EQ(kept.choose(tokens(13), all(1)).tokens, 12u);
    EXPECT_EQ(kept.choose(tokens(12), all(1)).tokens, 8u);
    EXPECT_EQ(kept.choose(tokens(4), all(1)).tokens, 0u);
    EXPECT_EQ(kept.choose(tokens(1), all(1)).tokens, 0u);
}

TEST(KeptPrefixes, ARequestMayRefuse) {
    KeptPrefixes kept(1, kChunk);
    run(kept, 0, tokens(12));
    EXPECT_EQ(kept.choose({}, all(1)).tokens, 0u);
}

TEST(KeptPrefixes, TheLongestBeginningWins) {
    KeptPrefixes kept(3, kChunk);
    run(kept, 0, tokens(4));
    run(kept, 1, tokens(12));
    run(kept, 2, tokens(8));
    const auto choice = kept.choose(tokens(30), all(3));
    EXPECT_EQ(choice.seq, SeqIndex(1));
    EXPECT_EQ(choice.tokens, 12u);
    const std::vector<SeqIndex> others{SeqIndex(0), SeqIndex(2)};
    EXPECT_EQ(kept.choose(tokens(30), others).seq, SeqIndex(2));
}

TEST(KeptPrefixes, AmongEqualsTheOneThatLosesLeast) {
    KeptPrefixes kept(2, kChunk);
    run(kept, 0, tokens(12));
    run(kept, 1, tokens(8));
    auto prompt = tokens(8);
    prompt.append_range(tokens(8, 100));
    EXPECT_EQ(kept.choose(prompt, all(2)).seq, SeqIndex(1));
}

// A long conversation is not thrown away for the few words that all conversations begin with.
TEST(KeptPrefixes, ALongPrefixIsNotGivenUpForAShortBeginning) {
    KeptPrefixes kept(2, kChunk);
    run(kept, 1, tokens(4, 500));
    run(kept, 0, tokens(40));
    auto prompt = tokens(4);
    prompt.append_range(tokens(8, 100));
    auto choice = kept.choose(prompt, all(2));
    EXPECT_EQ(choice.seq, SeqIndex(1));
    EXPECT_EQ(choice.tokens, 0u);
    // If there is no other place, what is shared is used all the same.
    choice = kept.choose(prompt, all(1));
    EXPECT_EQ(choice.tokens, 4u);
}

TEST(KeptPrefixes, NewcomersTakeWhatIsUnusedForLongest) {
    KeptPrefixes kept(3, kChunk);
    for (uint32_t seq : {2u, 0u, 1u})
        run(kept, seq, tokens(8, static_cast<TokenId>(100 * seq)));
    EXPECT_EQ(kept.choose(tokens(8, 900), all(3)).seq, SeqIndex(2));
    EXPECT_EQ(kept.choose({}, all(2)).seq, SeqIndex(0));
}

TEST(KeptPrefixes, NewcomersTakeWhatKeepsNothingFirst) {
    KeptPrefixes kept(2, kChunk);
    run(kept, 0, tokens(8));
    run(kept, 1, tokens(3));
    EXPECT_EQ(kept.choose(tokens(8, 900), all(2)).seq, SeqIndex(1));
}

TEST(KeptPrefixes, WhatIsOverwrittenIsForgotten) {
    KeptPrefixes kept(1, kChunk);
    run(kept, 0, tokens(12));
    kept.start(SeqIndex(0), 4);
    kept.append(SeqIndex(0), tokens(4, 50));
    EXPECT_EQ(kept.choose(tokens(20), all(1)).tokens, 4u);
}

}  // namespace
}  // namespace bevy
