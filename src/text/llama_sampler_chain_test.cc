#include "text/llama_sampler_chain.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "base/prng.h"

namespace bevy {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class LlamaSamplerChainTest : public testing::Test {
protected:
    static void SetUpTestSuite() {
        auto opened = LlamaVocabulary::open(BEVY_SOURCE_DIR "/models/bevy-tiny-moe-Q8_0.gguf");
        ASSERT_TRUE(opened.has_value()) << opened.error().text();
        shared_vocabulary = opened->release();
    }
    static void TearDownTestSuite() {
        delete shared_vocabulary;
        shared_vocabulary = nullptr;
    }
    static std::unique_ptr<Sampler> make(const SamplingParams& params,
                                         std::vector<TokenId> history = {}) {
        auto made = make_sampler(*shared_vocabulary, params, 1024, history);
        EXPECT_TRUE(made.has_value()) << (made ? "" : made.error().text());
        return made ? std::move(*made) : nullptr;
    }
    static std::vector<float> random_logits(Prng& prng) {
        std::vector<float> logits(shared_vocabulary->vocabulary_size());
        for (float& logit : logits)
            logit = static_cast<float>(prng.below(20'000)) / 1000.0f - 10.0f;
        return logits;
    }
    static LlamaVocabulary* shared_vocabulary;
};
LlamaVocabulary* LlamaSamplerChainTest::shared_vocabulary = nullptr;

SamplingParams greedy() {
    SamplingParams params;
    params.temperature = 0.0f;
    return params;
}

TEST_F(LlamaSamplerChainTest, GreedyTakesTheLargestLogitAndTheFirstOfEquals) {
    std::vector<float> logits(shared_vocabulary->vocabulary_size(), -1.0f);
    logits[77] = logits[1234] = 3.0f;
    EXPECT_EQ(make(greedy())->sample(logits), 77);
    logits[77] = kNan;
    EXPECT_EQ(make(greedy())->sample(logits), 1234);
    SamplingParams negative = greedy();
    negative.temperature = -1.0f;
    EXPECT_EQ(make(negative)->sample(logits), 1234);
}

TEST_F(LlamaSamplerChainTest, TheSameSeedGivesTheSameTokens) {
    const auto run = [&](uint32_t seed) {
        SamplingParams params;
        params.seed = seed;
        params.temperature = 1.5f;
        params.repeat_penalty = 1.1f;
        const auto sampler = make(params, {5, 6, 7});
        Prng prng(9);
        std::vector<TokenId> tokens;
        for (int i = 0; i < 40; ++i)
            tokens.push_back(sampler->sample(random_logits(prng)));
        return tokens;
    };
    EXPECT_EQ(run(1), run(1));
    EXPECT_NE(run(1), run(2));
}

TEST_F(LlamaSamplerChainTest, SamplersDoNotDisturbEachOther) {
    SamplingParams params;
    params.seed = 42;
    params.temperature = 1.2f;
    Prng prng(10);
    std::vector<std::vector<float>> steps;
    for (int i = 0; i < 20; ++i)
        steps.push_back(random_logits(prng));
    const auto alone = make(params);
    std::vector<TokenId> expected;
    for (const auto& logits : steps)
        expected.push_back(alone->sample(logits));
    const auto first = make(params);
    params.seed = 43;
    const auto second = make(params);
    for (size_t i = 0; i < steps.size(); ++i) {
        second->sample(steps[steps.size() - 1 - i]);
        EXPECT_EQ(first->sample(steps[i]), expected[i]);
    }
}

TEST_F(LlamaSamplerChainTest, DrawsInProportionToTheProbabilities) {
    std::vector<float> logits(shared_vocabulary->vocabulary_size(), -kInf);
    logits[10] = std::log(0.7f);
    logits[20] = std::log(0.3f);
    SamplingParams params;
    params.seed = 5;
    params.temperature = 1.0f;
    const auto sampler = make(params);
    std::map<TokenId, int> counts;
    for (int i = 0; i < 4000; ++i)
        ++counts[sampler->sample(logits)];
    EXPECT_EQ(counts.size(), 2u);
    EXPECT_NEAR(counts[10], 2800, 120);  // four standard deviations
}

TEST_F(LlamaSamplerChainTest, TruncationKeepsOnlyWhatItPromises) {
    Prng prng(11);
    std::vector<float> logits = random_logits(prng);
    logits[1] = 20.0f;
    logits[2] = 19.5f;
    logits[3] = 19.0f;
    const auto chosen = [&](SamplingParams params) {
        params.seed = 3;
        params.temperature = 1.0f;
        const auto sampler = make(params);
        std::set<TokenId> tokens;
        for (int i = 0; i < 300; ++i)
            tokens.insert(sampler->sample(logits));
        return tokens;
    };
    EXPECT_EQ(chosen({.top_k = 1}), std::set<TokenId>({1}));
    EXPECT_EQ(chosen({.top_k = 2, .top_p = 1.0f, .min_p = 0.0f}), std::set<TokenId>({1, 2}));
    EXPECT_EQ(chosen({.top_k = 0, .top_p = 0.0f}), std::set<TokenId>({1}));
    EXPECT_EQ(chosen({.top_k = 0, .top_p = 1.0f, .min_p = 0.5f}), std::set<TokenId>({1, 2}));
}

TEST_F(LlamaSamplerChainTest, PenaltiesCountThePromptAndTheOutput) {
    std::vector<float> logits(shared_vocabulary->vocabulary_size(), -5.0f);
    logits[10] = 3.0f;
    logits[20] = 2.5f;
    logits[30] = 2.0f;
    SamplingParams params = greedy();
    params.presence_penalty = 2.0f;
    const auto sampler = make(params, {10});
    EXPECT_EQ(sampler->sample(logits), 20);
    EXPECT_EQ(sampler->sample(logits), 30);
    EXPECT_EQ(sampler->sample(logits), 10);
    params.repeat_last_n = 0;
    EXPECT_EQ(make(params, {10})->sample(logits), 10);
}

TEST_F(LlamaSamplerChainTest, OddLogitsNeverCrash) {
    std::vector<SamplingParams> variants(8);
    variants[0] = greedy();
    variants[1].top_k = 0;
    variants[2].typical_p = 0.9f;
    variants[2].top_k = 0;
    variants[3].top_n_sigma = 1.0f;
    variants[4].xtc_probability = 1.0f;
    variants[5].dry_multiplier = 2.0f;
    variants[6].temperature = 1e-6f;
    variants[6].repeat_penalty = 1000.0f;
    variants[7].temperature = 1e-4f;
    variants[7].frequency_penalty = 1000.0f;
    Prng prng(12);
    for (const SamplingParams& params : variants) {
        const auto sampler = make(params, {1, 2, 3, 1, 2, 3});
        for (int round = 0; round < 60; ++round) {
            const uint64_t share = prng.below(5);
            std::vector<float> logits = random_logits(prng);
            for (float& logit : logits) {
                if (!prng.chance(share, 4))
                    continue;
                const float odd[] = {kNan, kInf, -kInf, 3e38f, -3e38f, 1e-40f};
                logit = odd[prng.below(6)];
            }
            const TokenId token = sampler->sample(logits);
            ASSERT_GE(token, 0);
            ASSERT_LT(token, 4096);
        }
    }
}

TEST_F(LlamaSamplerChainTest, EndsTheTextWhenNothingIsPossible) {
    const std::vector<float> logits(shared_vocabulary->vocabulary_size(), kNan);
    EXPECT_TRUE(shared_vocabulary->is_end_of_generation(make(greedy())->sample(logits)));
    EXPECT_TRUE(shared_vocabulary->is_end_of_generation(make({})->sample(logits)));
}

TEST_F(LlamaSamplerChainTest, IgnoresTheEndOfGenerationWhenAsked) {
    std::vector<float> logits(shared_vocabulary->vocabulary_size(), -1.0f);
    logits[4095] = 10.0f;
    logits[4093] = 9.0f;
    logits[50] = 1.0f;
    SamplingParams params = greedy();
    EXPECT_EQ(make(params)->sample(logits), 4095);
    params.ignore_end_of_generation = true;
    EXPECT_EQ(make(params)->sample(logits), 50);
    params.temperature = 0.1f;
    EXPECT_EQ(make(params)->sample(logits), 50);
}

TEST_F(LlamaSamplerChainTest, GrammarDecidesWhatMayFollow) {
    SamplingParams params;
    params.seed = 1;
    params.grammar = "root ::= (\"yes\" | \"no\") \"!\"";
    Prng prng(13);
    for (params.temperature = 0.0f; params.temperature < 3.0f; params.temperature += 1.0f) {
        const auto sampler = make(params);
        std::string text;
        bool ended = false;
        for (int i = 0; i < 8 && !ended; ++i) {
            const TokenId token = sampler->sample(random_logits(prng));
            ended = shared_vocabulary->is_end_of_generation(token);
            text += shared_vocabulary->piece(token, false);
        }
        EXPECT_TRUE(ended);
        EXPECT_TRUE(text == "yes!" || text == "no!") << text;
    }
}

TEST_F(LlamaSamplerChainTest, AFinishedGrammarWithoutAnEndEndsAnyway) {
    SamplingParams params = greedy();
    params.grammar = "root ::= \"a\"";
    params.ignore_end_of_generation = true;
    const auto sampler = make(params);
    Prng prng(14);
    EXPECT_EQ(shared_vocabulary->piece(sampler->sample(random_logits(prng)), false), "a");
    for (int i = 0; i < 3; ++i)
        EXPECT_TRUE(shared_vocabulary->is_end_of_generation(sampler->sample(random_logits(prng))));
}

TEST_F(LlamaSamplerChainTest, RefusesGrammarsThatDoNotParse) {
    const std::string deep =
        "root ::= " + std::string(100'000, '(') + "\"a\"" + std::string(100'000, ')');
    for (const std::string& grammar :
         {std::string("root := \"a\""), std::string("root ::= undefined"),
          std::string("other ::= \"a\""), std::string("root ::= root \"a\""),
          std::string("root ::= \"a"), std::string("root ::= [a"), deep,
          std::string("root ::= \"a\"\0", 13), std::string("root ::= \"a\"{1000000000}")}) {
        SamplingParams params;
        params.grammar = grammar;
        const auto made = make_sampler(*shared_vocabulary, params, 1024, {});
        ASSERT_FALSE(made.has_value()) << grammar.substr(0, 60);
        EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
        EXPECT_TRUE(made.error().message.starts_with("grammar: ")) << made.error().message;
    }
}

TEST(SamplingParamsTest, DefaultsAreValid) {
    EXPECT_TRUE(validate({}).has_value());
}

TEST(SamplingParamsTest, RefusalsNameFieldAndRange) {
    const auto refused = [](const char* field, auto member, std::initializer_list<float> values) {
        for (const float value : values) {
            SamplingParams params;
            params.*member = value;
            const Status status = validate(params);
            ASSERT_FALSE(status.has_value()) << field << " " << value;
            EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
            EXPECT_TRUE(status.error().message.starts_with(field)) << status.error().message;
            EXPECT_TRUE(status.error().hint.contains("between")) << status.error().hint;
        }
    };
    refused("temperature", &SamplingParams::temperature, {kNan, kInf, -kInf, 1e9f});
    refused("top_p", &SamplingParams::top_p, {kNan, kInf, -0.1f, 1.5f});
    refused("min_p", &SamplingParams::min_p, {kNan, -0.1f, 1.5f});
    refused("typical_p", &SamplingParams::typical_p, {kNan, -0.1f, 1.5f});
    refused("repeat_penalty", &SamplingParams::repeat_penalty, {kNan, 0.0f, -1.0f, kInf});
    refused("presence_penalty", &SamplingParams::presence_penalty, {kNan, kInf, -kInf});
    refused("frequency_penalty", &SamplingParams::frequency_penalty, {kNan, kInf, -kInf});
    refused("xtc_probability", &SamplingParams::xtc_probability, {kNan, 2.0f});
    refused("dry_base", &SamplingParams::dry_base, {kNan, -1.0f, kInf});
    SamplingParams params;
    params.repeat_last_n = -2;
    EXPECT_FALSE(validate(params).has_value());
}

TEST(SamplingParamsTest, TheBordersOfARangeAreValid) {
    SamplingParams params;
    params.top_p = 1.0f;
    params.min_p = 1.0f;
    params.repeat_penalty = 0.001f;
    params.temperature = 1000.0f;
    EXPECT_TRUE(validate(params).has_value());
}

TEST_F(LlamaSamplerChainTest, BiasesChangeTheChoiceAndForbidIt) {
    std::vector<float> logits(shared_vocabulary->vocabulary_size(), -1.0f);
    logits[77] = 3.0f;
    SamplingParams params = greedy();
    params.logit_bias = {{1234, 5.0f}};
    EXPECT_EQ(make(params)->sample(logits), 1234);
    params.logit_bias = {{77, -kInf}, {5, 1.0f}, {1 << 30, 9.0f}, {-1, 9.0f}};
    EXPECT_EQ(make(params)->sample(logits), 5);
    params.temperature = 1.0f;
    for (int i = 0; i < 20; ++i)
        EXPECT_NE(make(params)->sample(logits), 77);
    params.logit_bias = {{1, kNan}};
    EXPECT_FALSE(make_sampler(*shared_vocabulary, params, 1024, {}).has_value());
}

TEST_F(LlamaSamplerChainTest, ProbabilitiesAreThoseOfTheModelsLogits) {
    std::vector<float> logits(shared_vocabulary->vocabulary_size(), -kInf);
    logits[10] = 1.0f;
    logits[20] = 2.0f;
    logits[30] = kNan;
    SamplingParams params = greedy();
    EXPECT_EQ(make(params)->probabilities(), nullptr);
    params.n_probs = 3;
    params.logit_bias = {{10, 100.0f}};  // changes the choice, not the probabilities
    const auto sampler = make(params);
    EXPECT_EQ(sampler->sample(logits), 10);
    const TokenProbabilities* probabilities = sampler->probabilities();
    ASSERT_NE(probabilities, nullptr);
    EXPECT_EQ(probabilities->chosen.token, 10);
    EXPECT_NEAR(probabilities->chosen.log_probability, -1.3132617, 1e-6);
    ASSERT_EQ(probabilities->top.size(), 3u);
    EXPECT_EQ(probabilities->top[0].token, 20);
    EXPECT_NEAR(probabilities->top[0].log_probability, -0.3132617, 1e-6);
    EXPECT_EQ(probabilities->top[1].token, 10);
    EXPECT_TRUE(std::isfinite(probabilities->top[2].log_probability));
}

}  // namespace
}  // namespace bevy
