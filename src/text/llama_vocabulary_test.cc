#include "text/llama_vocabulary.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/prng.h"

namespace bevy {
namespace {

const std::string kModel = BEVY_SOURCE_DIR "/models/bevy-tiny-moe-Q8_0.gguf";

class LlamaVocabularyTest : public testing::Test {
protected:
    static void SetUpTestSuite() {
        auto opened = LlamaVocabulary::open(kModel);
        ASSERT_TRUE(opened.has_value()) << opened.error().text();
        shared_vocabulary = opened->release();
    }
    static void TearDownTestSuite() {
        delete shared_vocabulary;
        shared_vocabulary = nullptr;
    }
    static std::string decode(const std::vector<TokenId>& tokens, bool special) {
        std::string text;
        for (const TokenId token : tokens)
            text += shared_vocabulary->piece(token, special);
        return text;
    }
    static LlamaVocabulary* shared_vocabulary;
};
LlamaVocabulary* LlamaVocabularyTest::shared_vocabulary = nullptr;

TEST_F(LlamaVocabularyTest, KnowsItsSpecialTokens) {
    EXPECT_EQ(shared_vocabulary->vocabulary_size(), 4096u);
    EXPECT_EQ(shared_vocabulary->bos_text(), "<|endoftext|>");
    EXPECT_EQ(shared_vocabulary->eos_text(), "<|im_end|>");
    EXPECT_FALSE(shared_vocabulary->adds_bos());
    EXPECT_FALSE(shared_vocabulary->adds_eos());
    EXPECT_TRUE(shared_vocabulary->is_end_of_generation(4095));
    EXPECT_TRUE(shared_vocabulary->is_end_of_generation(4093));
    EXPECT_FALSE(shared_vocabulary->is_end_of_generation(4094));
    EXPECT_FALSE(shared_vocabulary->is_end_of_generation(100));
    const auto source = shared_vocabulary->chat_template();
    ASSERT_TRUE(source.has_value());
    EXPECT_TRUE(source->contains("<|im_start|>"));
    EXPECT_FALSE(shared_vocabulary->chat_template("no such template").has_value());
}

// The ids were made by llama.cpp; the texts are from eight domains.
TEST_F(LlamaVocabularyTest, GivesTheReferenceTokens) {
    std::ifstream file(BEVY_SOURCE_DIR "/tests/data/tiny_moe_tokens.json");
    ASSERT_TRUE(file.good()) << "tests/data/tiny_moe_tokens.json is missing";
    const nlohmann::json reference = nlohmann::json::parse(file);
    ASSERT_GE(reference.size(), 8u);
    for (const auto& entry : reference) {
        const auto text = entry.at("text").get<std::string>();
        const auto tokens = entry.at("tokens").get<std::vector<TokenId>>();
        EXPECT_EQ(shared_vocabulary->encode(text, false, true), tokens) << text;
        EXPECT_EQ(decode(tokens, true), text);
    }
}

TEST_F(LlamaVocabularyTest, ParsesSpecialTokensOnlyWhenAsked) {
    const std::string text = "<|im_start|>user";
    EXPECT_EQ(shared_vocabulary->encode(text, false, true).front(), 4094);
    EXPECT_NE(shared_vocabulary->encode(text, false, false).front(), 4094);
    EXPECT_EQ(decode(shared_vocabulary->encode(text, false, false), false), text);
    EXPECT_EQ(shared_vocabulary->piece(4094, true), "<|im_start|>");
    EXPECT_EQ(shared_vocabulary->piece(4094, false), "");
}

TEST_F(LlamaVocabularyTest, RestoresArbitraryText) {
    const std::vector<std::string> parts = {
        "a", "Z",  " ", "\n",  "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80",
        "7", "\t", ".", "\0x", "<|"};
    Prng prng(3);
    for (int round = 0; round < 300; ++round) {
        std::string text;
        for (uint64_t n = prng.below(40); n > 0; --n)
            text += parts[prng.below(parts.size())];
        EXPECT_EQ(decode(shared_vocabulary->encode(text, false, false), false), text);
    }
}

TEST_F(LlamaVocabularyTest, SurvivesBytesThatAreNoText) {
    Prng prng(4);
    for (int round = 0; round < 200; ++round) {
        std::string bytes;
        for (uint64_t n = prng.below(60); n > 0; --n)
            bytes += static_cast<char>(prng.below(256));
        for (const TokenId token : shared_vocabulary->encode(bytes, true, true)) {
            ASSERT_GE(token, 0);
            ASSERT_LT(token, 4096);
        }
    }
}

TEST_F(LlamaVocabularyTest, TakesLongRunsWithoutABreak) {
    for (const char c : {'a', ' ', '7', '\n', '!'}) {
        const std::string text(200'000, c);
        EXPECT_EQ(decode(shared_vocabulary->encode(text, false, false), false), text) << c;
    }
}

TEST_F(LlamaVocabularyTest, TokensOutsideTheVocabularyHaveNoText) {
    for (const TokenId token :
         {-1, 4096, std::numeric_limits<TokenId>::max(), std::numeric_limits<TokenId>::min()}) {
        EXPECT_EQ(shared_vocabulary->piece(token, true), "");
        EXPECT_FALSE(shared_vocabulary->is_end_of_generation(token));
    }
}

TEST(LlamaVocabulary, RefusesAMissingFile) {
    const auto opened = LlamaVocabulary::open("/no/such/model.gguf");
    ASSERT_FALSE(opened.has_value());
    EXPECT_EQ(opened.error().code, ErrorCode::kNotFound);
    EXPECT_TRUE(opened.error().message.contains("/no/such/model.gguf"));
}

std::filesystem::path temporary_path(const std::string& name) {
    return std::filesystem::path(testing::TempDir()) /
           ("bevy-vocabulary-" + std::to_string(::getpid()) + "-" + name + ".gguf");
}

TEST(LlamaVocabulary, RefusesAFileThatIsNoModel) {
    const std::filesystem::path path = temporary_path("not-a-model");
    std::ofstream(path) << "this is not a model";
    const auto opened = LlamaVocabulary::open(path);
    ASSERT_FALSE(opened.has_value());
    EXPECT_EQ(opened.error().code, ErrorCode::kCorruptFile);
    EXPECT_TRUE(opened.error().message.contains(path.string()));
    std::filesystem::remove(path);
}

TEST(LlamaVocabulary, RefusesACutFile) {
    const std::filesystem::path path = temporary_path("cut");
    {
        std::ifstream in(kModel, std::ios::binary);
        std::string head(20'000, '\0');
        in.read(head.data(), static_cast<std::streamsize>(head.size()));
        std::ofstream(path, std::ios::binary) << head;
    }
    const auto opened = LlamaVocabulary::open(path);
    ASSERT_FALSE(opened.has_value());
    EXPECT_EQ(opened.error().code, ErrorCode::kCorruptFile);
    std::filesystem::remove(path);
}

}  // namespace
}  // namespace bevy
