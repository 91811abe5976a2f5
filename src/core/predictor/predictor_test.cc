// Each predictor on routes made by hand: what it has learned, what it forgets, and when it says
// nothing.
#include "core/predictor/predictor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <vector>

#include "base/prng.h"
#include "base/registry.h"
#include "core/core_test_driver.h"
#include "core/predictor/registry.h"

namespace bevy {
namespace {

constexpr PredictorShape kShape = {
    .layers = 3, .experts_per_layer = 8, .experts_used = 2, .sequences = 2, .lookahead = 2};

std::vector<uint32_t> values(const std::vector<ExpertIndex>& indices) {
    std::vector<uint32_t> values;
    for (ExpertIndex i : indices)
        values.push_back(i.value);
    return values;
}

using Indices = std::vector<uint32_t>;

// A predictor, and routes told to it in the order in which a request reveals them.
struct Told {
    explicit Told(std::unique_ptr<Predictor> made) : predictor(std::move(made)) {}

    void reveal(uint32_t seq, uint32_t layer, std::initializer_list<uint32_t> used,
                std::vector<ExpertIndex> guesses = {}) {
        std::vector<ExpertDemand> route = experts(used);
        predictor->on_reveal(
            {.seq = SeqIndex(seq), .layer = LayerIndex(layer), .used = route, .guesses = guesses});
        last_layer = layer;
    }
    // What is expected `ahead` layers after the last reveal, which was of `seq`.
    Indices expected(uint32_t seq, uint32_t ahead) {
        std::vector<ExpertIndex> out;
        uint32_t target = last_layer + ahead;
        predictor->predict({.seq = SeqIndex(seq),
                            .ahead = ahead,
                            .target = LayerIndex(target % kShape.layers),
                            .next_token = target >= kShape.layers},
                           out);
        return values(out);
    }
    void token(uint32_t seq, std::initializer_list<uint32_t> used) {
        for (uint32_t layer = 0; layer < kShape.layers; layer++)
            reveal(seq, layer, used);
    }

    std::unique_ptr<Predictor> predictor;
    uint32_t last_layer = 0;
};

Indices largest(std::initializer_list<uint64_t> scores, uint32_t count) {
    std::vector<ExpertIndex> out;
    append_largest(std::vector(scores), count, out);
    return values(out);
}

TEST(AppendLargest, DescendsGivesTiesToTheLowerIndexAndLeavesOutZeros) {
    EXPECT_EQ(largest({1, 5, 3, 4}, 2), (Indices{1, 3}));
    EXPECT_EQ(largest({4, 3, 2, 1}, 2), (Indices{0, 1}));
    EXPECT_EQ(largest({1, 2, 3, 4}, 2), (Indices{3, 2}));
    EXPECT_EQ(largest({7, 7, 7}, 2), (Indices{0, 1}));
    EXPECT_EQ(largest({7, 9, 7, 7}, 3), (Indices{1, 0, 2}));
    EXPECT_EQ(largest({0, 0, 6, 0}, 3), (Indices{2}));
    EXPECT_EQ(largest({0, 0}, 2), (Indices{}));
    EXPECT_EQ(largest({5, 6}, 0), (Indices{}));
    EXPECT_EQ(largest({5, 6}, 9), (Indices{1, 0}));
}

TEST(AppendLargest, LeavesWhatWasThereBefore) {
    std::vector<ExpertIndex> out = {ExpertIndex(3), ExpertIndex(0)};
    append_largest(std::vector<uint64_t>{9, 1, 4, 8}, 2, out);
    EXPECT_EQ(values(out), (Indices{3, 0, 0, 3}));
}

TEST(AppendLargest, AgreesWithAStableSort) {
    Prng prng(5);
    for (int round = 0; round < 1000; round++) {
        std::vector<uint64_t> scores(prng.between(1, 12));
        for (uint64_t& score : scores)
            score = prng.below(5);
        auto count = static_cast<uint32_t>(prng.between(0, 12));
        std::vector<ExpertIndex> sorted;
        for (uint32_t e = 0; e < scores.size(); e++) {
            if (scores[e] > 0)
                sorted.emplace_back(e);
        }
        std::ranges::stable_sort(sorted, std::ranges::greater{},
                                 [&](ExpertIndex e) { return scores[e.value]; });
        if (sorted.size() > count)
            sorted.resize(count);
        std::vector<ExpertIndex> out;
        append_largest(scores, count, out);
        ASSERT_EQ(values(out), values(sorted));
    }
}

TEST(Predictors, KnowNothingAtFirstAndNeverSayMoreThanATokenUses) {
    for (const PredictorRow& row : predictors()) {
        Told told(row.make(kShape));
        told.predictor->on_start(SeqIndex(0));
        Prng prng(11);
        for (uint32_t reveal = 0; reveal < 300; reveal++) {
            auto e = static_cast<uint32_t>(prng.below(8));
            told.reveal(0, reveal % kShape.layers, {e, (e + 1) % 8});
            for (uint32_t ahead = 1; ahead <= kShape.lookahead; ahead++) {
                Indices expected = told.expected(0, ahead);
                EXPECT_LE(expected.size(), kShape.experts_used) << row.name;
                EXPECT_TRUE(reveal > 0 || expected.empty()) << row.name;
            }
        }
    }
}

TEST(NextGate, SaysWhatTheComputeBackendGuessedAndIsSilentBeyond) {
    Told told(make_next_gate_predictor(kShape));
    std::vector<ExpertIndex> both = {ExpertIndex(4), ExpertIndex(5), ExpertIndex(6),
                                     ExpertIndex(7)};
    told.reveal(0, 0, {0, 1}, both);
    EXPECT_EQ(told.expected(0, 1), (Indices{4, 5}));
    EXPECT_EQ(told.expected(0, 2), (Indices{6, 7}));
    told.reveal(1, 1, {0, 1}, {ExpertIndex(2), ExpertIndex(3)});  // only one layer follows
    EXPECT_EQ(told.expected(1, 1), (Indices{2, 3}));
    EXPECT_EQ(told.expected(1, 2), (Indices{}));
    told.reveal(0, 2, {0, 1});
    EXPECT_EQ(told.expected(0, 1), (Indices{}));
}

TEST(PreviousToken, ExpectsWhatTheSameRequestUsedAtTheLayerLastTime) {
    Told told(make_previous_token_predictor(kShape));
    told.reveal(0, 0, {1, 2});
    told.reveal(0, 1, {3, 4});
    EXPECT_EQ(told.expected(0, 1), (Indices{}));      // layer 2 is unknown
    EXPECT_EQ(told.expected(0, 2), (Indices{1, 2}));  // the next token's layer 0
    told.reveal(0, 2, {5, 6});
    told.reveal(0, 0, {7, 0});
    EXPECT_EQ(told.expected(0, 1), (Indices{3, 4}));
    EXPECT_EQ(told.expected(0, 2), (Indices{5, 6}));
    told.reveal(1, 0, {2, 3});  // another request shares nothing
    EXPECT_EQ(told.expected(1, 1), (Indices{}));
    told.predictor->on_end(SeqIndex(0));
    told.reveal(0, 0, {1, 2});  // the next request on the same sequence starts from nothing
    EXPECT_EQ(told.expected(0, 1), (Indices{}));
}

TEST(Transition, LearnsWhatFollowsTheExpertsOfALayer) {
    Told told(make_transition_predictor(kShape));
    told.reveal(0, 0, {1, 2});
    told.reveal(0, 1, {3, 4});
    told.reveal(0, 2, {5, 6});
    told.reveal(1, 0, {1, 2});  // all requests teach, and all may ask
    EXPECT_EQ(told.expected(1, 1), (Indices{3, 4}));
    EXPECT_EQ(told.expected(1, 2), (Indices{5, 6}));
    told.reveal(1, 1, {0, 7});
    EXPECT_EQ(told.expected(1, 1), (Indices{}));  // nobody came from those
    told.predictor->on_end(SeqIndex(0));
    told.reveal(0, 0, {2, 1});
    EXPECT_EQ(told.expected(0, 1), (Indices{0, 7}));  // the latest weighs most
}

TEST(Transition, LearnsAcrossTheBorderOfTwoTokens) {
    Told told(make_transition_predictor(kShape));
    told.token(0, {1, 2});
    told.token(0, {3, 4});
    told.reveal(1, 2, {2, 1});
    EXPECT_EQ(told.expected(1, 1), (Indices{3, 4}));
    EXPECT_EQ(told.expected(1, 2), (Indices{3, 4}));
}

TEST(Transition, ForgetsWhatNoLongerFollows) {
    Told told(make_transition_predictor(kShape));
    auto follow = [&](std::initializer_list<uint32_t> used, int times) {
        for (int i = 0; i < times; i++) {
            told.reveal(0, 0, {1, 2});
            told.reveal(0, 1, used);
            told.predictor->on_end(SeqIndex(0));
        }
        told.reveal(0, 0, {1, 2});
        Indices expected = told.expected(0, 1);
        told.predictor->on_end(SeqIndex(0));
        return expected;
    };
    EXPECT_EQ(follow({3, 4}, 1000), (Indices{3, 4}));
    EXPECT_EQ(follow({5, 6}, 10), (Indices{3, 4}));   // a habit is not lost at once
    EXPECT_EQ(follow({5, 6}, 100), (Indices{5, 6}));  // but within some 64 visits
}

// With chunks of one token, passes without logits end before the last layer's experts: the reveals
// of a request are then not those of consecutive layers.
TEST(Transition, LearnsNothingFromRevealsThatDoNotFollowEachOther) {
    Told told(make_transition_predictor(kShape));
    told.reveal(0, 0, {1, 2});
    told.reveal(0, 1, {3, 4});
    told.reveal(0, 0, {5, 6});  // layer 2 was left out
    told.reveal(1, 1, {3, 4});
    EXPECT_EQ(told.expected(1, 1), (Indices{}));
    EXPECT_EQ(told.expected(1, 2), (Indices{}));
}

// A request of a few tokens that uses `used` everywhere begins and ends on `seq`.
void live(Told& told, uint32_t seq, int tokens, std::initializer_list<uint32_t> used) {
    told.predictor->on_start(SeqIndex(seq));
    for (int i = 0; i < tokens; i++)
        told.token(seq, used);
    told.predictor->on_end(SeqIndex(seq));
}

TEST(Frequency, FindsTheSimilarEarlierRequest) {
    Told told(make_frequency_predictor(kShape));
    live(told, 0, 3, {0, 1});
    live(told, 0, 3, {4, 5});
    told.reveal(1, 0, {4, 7});
    EXPECT_EQ(told.expected(1, 1), (Indices{}));  // nothing to compare by yet
    told.reveal(1, 1, {4, 5});
    told.reveal(1, 2, {6, 5});
    told.reveal(1, 0, {2, 3});  // looked up here, by the first token
    EXPECT_EQ(told.expected(1, 1), (Indices{4, 5}));
    EXPECT_EQ(told.expected(1, 2), (Indices{4, 5}));
    live(told, 0, 3, {0, 1});
    told.reveal(0, 0, {0, 1});
    told.reveal(0, 0, {0, 1});
    EXPECT_EQ(told.expected(0, 1), (Indices{0, 1}));
}

TEST(Frequency, ComparesDirectionsNotLengths) {
    Told told(make_frequency_predictor(kShape));
    // A long request whose experts are half right has the larger product, a short one that is
    // entirely right the larger cosine.
    told.predictor->on_start(SeqIndex(0));
    for (int i = 0; i < 50; i++)
        told.token(0, {1, static_cast<uint32_t>(2 + i % 6)});
    told.predictor->on_end(SeqIndex(0));
    live(told, 0, 2, {1, 3});
    told.token(1, {1, 3});
    told.reveal(1, 0, {1, 3});
    EXPECT_EQ(told.expected(1, 1), (Indices{1, 3}));
}

TEST(Frequency, GoesByTheRequestItselfWhileThereIsNoHistory) {
    Told told(make_frequency_predictor(kShape));
    told.token(0, {2, 6});
    told.token(0, {6, 7});
    told.reveal(0, 0, {0, 1});
    EXPECT_EQ(told.expected(0, 1), (Indices{6, 2}));
    told.predictor->on_end(SeqIndex(1));  // one that never decoded leaves no history
    told.reveal(0, 0, {0, 1});
    EXPECT_EQ(told.expected(0, 1), (Indices{6, 2}));
}

TEST(Frequency, AFullHistoryGivesUpTheRequestThatTheNewcomerResembles) {
    Told told(make_frequency_predictor(kShape));
    for (int i = 0; i < 63; i++)
        live(told, 0, 3, {0, 1});
    live(told, 0, 3, {4, 5});
    for (int i = 0; i < 100; i++)
        live(told, 0, 3, {0, 1});
    told.token(1, {4, 5});  // the only one of its kind is still remembered
    told.reveal(1, 0, {4, 5});
    EXPECT_EQ(told.expected(1, 1), (Indices{4, 5}));
}

}  // namespace
}  // namespace bevy
