// The promise of compute.h: the same tokens give the same bits whichever sequences share a step,
// however a sequence's experts are split over steps, and wherever they lie.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <span>
#include <vector>

#include "compute/testing/random_models.h"
#include "compute/testing/sync_driver.h"

namespace bevy {
namespace {

using testing::random_model;
using testing::small_shape;
using testing::SyncDriver;

constexpr uint32_t kSequences = 12;
constexpr uint32_t kLanes = 2;

// [sequence][logits of every pass, one after the other]
using Transcript = std::vector<std::vector<float>>;

// Every sequence has a prompt of its own length, in chunks, and then some single tokens.
std::vector<std::vector<PassInput>> make_work(const SyncDriver& driver) {
    Prng random(5);
    std::vector<std::vector<PassInput>> work;
    for (uint32_t seq = 0; seq < kSequences; seq++) {
        std::vector<TokenId> prompt(1 + random.below(40));
        for (TokenId& token : prompt)
            token = static_cast<TokenId>(random.below(driver.shape().vocabulary));
        work.push_back(driver.chunks(seq, prompt));
        for (uint32_t i = 0; i < 4; i++)
            work.back().push_back(SyncDriver::one_token(
                seq, static_cast<TokenId>(random.below(driver.shape().vocabulary)),
                static_cast<uint32_t>(prompt.size()) + i));
    }
    return work;
}

void note(const SyncDriver& driver, const PassInput& pass, Transcript& transcript) {
    std::span<const float> logits = driver.logits(pass.seq.value);
    std::vector<float>& own = transcript[pass.seq.value];
    if (pass.wants_logits)
        own.insert(own.end(), logits.begin(), logits.end());
}

Transcript one_by_one(SyncDriver& driver) {
    Transcript transcript(kSequences);
    for (const std::vector<PassInput>& passes : make_work(driver)) {
        for (const PassInput& pass : passes) {
            driver.run({pass});
            note(driver, pass, transcript);
        }
    }
    return transcript;
}

// All sequences at once, as far as there are lanes for their chunks.
Transcript together(SyncDriver& driver, Prng* random) {
    Transcript transcript(kSequences);
    std::vector<std::vector<PassInput>> work = make_work(driver);
    std::vector<size_t> next(kSequences, 0);
    for (bool more = true; more;) {
        more = false;
        std::vector<PassInput> round;
        uint32_t lanes = 0;
        for (uint32_t seq = 0; seq < kSequences; seq++) {
            if (next[seq] == work[seq].size())
                continue;
            more = true;
            const PassInput& pass = work[seq][next[seq]];
            if (pass.tokens.size() > 1 && lanes++ >= kLanes)
                continue;
            round.push_back(pass);
            next[seq]++;
        }
        driver.run(round, random);
        for (const PassInput& pass : round)
            note(driver, pass, transcript);
    }
    return transcript;
}

void expect_same_bits(const Transcript& got, const Transcript& expected) {
    for (uint32_t seq = 0; seq < kSequences; seq++) {
        ASSERT_EQ(got[seq].size(), expected[seq].size());
        const auto bytes_of = [](const auto& logits) { return std::as_bytes(std::span(logits)); };
        EXPECT_TRUE(std::ranges::equal(bytes_of(got[seq]), bytes_of(expected[seq])))
            << "sequence " << seq;
    }
}

class Schedule : public ::testing::TestWithParam<std::tuple<std::string, ggml_type>> {};

TEST_P(Schedule, DoesNotChangeABit) {
    auto [architecture, type] = GetParam();
    ModelShape shape = small_shape(architecture);
    shape.layers = 2;
    // Few experts, so that one expert gets more than eight rows at once.
    shape.experts = 4;
    shape.experts_used = 3;
    auto model = random_model(shape, 21, testing::all_of(type));
    ComputeOptions options{.sequences = kSequences,
                           .context_per_sequence = 64,
                           .chunk_tokens = 16,
                           .prefill_lanes = kLanes,
                           .threads = 2};
    auto driver = SyncDriver::open(model->path(), options);
    ASSERT_TRUE(driver) << driver.error().text();
    const Transcript expected = one_by_one(**driver);
    expect_same_bits(together(**driver, nullptr), expected);

    // Few slots, in which experts lie at offsets of their own.
    auto tight = SyncDriver::open(model->path(), options, 5, 2);
    ASSERT_TRUE(tight) << tight.error().text();
    for (uint64_t seed = 0; seed < 2; seed++) {
        Prng random(seed);
        expect_same_bits(together(**tight, &random), expected);
    }
    options.threads = 3;
    options.guessed_layers = 1;
    auto threads = SyncDriver::open(model->path(), options, 0, 4);
    ASSERT_TRUE(threads) << threads.error().text();
    expect_same_bits(together(**threads, nullptr), expected);
}

INSTANTIATE_TEST_SUITE_P(
    Types, Schedule,
    ::testing::Combine(::testing::Values("qwen3moe"),
                       ::testing::Values(GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16,
                                         GGML_TYPE_Q8_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1,
                                         GGML_TYPE_Q5_0, GGML_TYPE_Q5_1, GGML_TYPE_Q2_K,
                                         GGML_TYPE_Q3_K, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K,
                                         GGML_TYPE_Q6_K, GGML_TYPE_MXFP4)));
INSTANTIATE_TEST_SUITE_P(GptOss, Schedule,
                         ::testing::Combine(::testing::Values("gpt-oss"),
                                            ::testing::Values(GGML_TYPE_F32, GGML_TYPE_Q8_0,
                                                              GGML_TYPE_Q4_K, GGML_TYPE_MXFP4)));

// Far into a context, ggml may split one query's positions among threads: neighbours in a step must
// not matter there either.
TEST(ScheduleLongContext, GroupsDoNotChangeABit) {
    ModelShape shape = small_shape("qwen3moe");
    shape.layers = 1;
    auto model = random_model(shape, 22, testing::all_of(GGML_TYPE_Q8_0));
    ComputeOptions options{.sequences = 3,
                           .context_per_sequence = 700,
                           .chunk_tokens = 128,
                           .prefill_lanes = 1,
                           .threads = 2};
    auto driver = SyncDriver::open(model->path(), options);
    ASSERT_TRUE(driver) << driver.error().text();
    Prng random(9);
    std::vector<PassInput> group;
    for (uint32_t seq = 0; seq < 3; seq++) {
        std::vector<TokenId> prompt(450 + 100 * seq);
        for (TokenId& token : prompt)
            token = static_cast<TokenId>(random.below(shape.vocabulary));
        (*driver)->prefill(seq, prompt);
        group.push_back(SyncDriver::one_token(seq, 7, static_cast<uint32_t>(prompt.size())));
    }
    // The same token at the same position again and again: it only overwrites itself.
    Transcript alone(kSequences), grouped(kSequences);
    for (const PassInput& pass : group) {
        (*driver)->run({pass});
        note(**driver, pass, alone);
    }
    (*driver)->run(group);
    for (const PassInput& pass : group)
        note(**driver, pass, grouped);
    expect_same_bits(grouped, alone);
}

// A pass that was given up leaves its lane to others.
TEST(ScheduleAbandon, FreesTheLane) {
    ModelShape shape = small_shape("qwen3moe");
    shape.layers = 1;
    auto model = random_model(shape, 23, testing::all_of(GGML_TYPE_F32));
    ComputeOptions options{.sequences = 3,
                           .context_per_sequence = 64,
                           .chunk_tokens = 8,
                           .prefill_lanes = 1,
                           .threads = 1};
    auto driver = SyncDriver::open(model->path(), options);
    ASSERT_TRUE(driver) << driver.error().text();
    const std::vector<TokenId> prompt = {1, 2, 3, 4, 5};
    (*driver)->prefill(1, prompt);
    std::vector<float> expected((*driver)->logits(1).begin(), (*driver)->logits(1).end());
    ComputeStep step;
    step.advancing = {SeqIndex(0)};
    step.passes = {{SeqIndex(0), prompt, 0, true}};
    (*driver)->run_step(step);
    (*driver)->compute().abandon(SeqIndex(0));
    (*driver)->prefill(2, prompt);
    EXPECT_EQ(
        std::memcmp((*driver)->logits(2).data(), expected.data(), expected.size() * sizeof(float)),
        0);
}

}  // namespace
}  // namespace bevy
