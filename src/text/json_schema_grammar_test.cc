#include "text/json_schema_grammar.h"

#include <gtest/gtest.h>
#include <llama.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "text/json_schema_integers.h"
#include "text/llama_vocabulary.h"

namespace bevy {
namespace {

// Whether a grammar accepts a text, decided by libllama as it would be in a generation.
class JsonSchemaGrammarTest : public testing::Test {
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

    static bool grammar_accepts(const std::string& grammar, const std::string& text) {
        const std::unique_ptr<llama_sampler, void (*)(llama_sampler*)> sampler(
            llama_sampler_init_grammar(shared_vocabulary->handle(), grammar.c_str(), "root"),
            llama_sampler_free);
        EXPECT_NE(sampler, nullptr) << grammar;
        if (!sampler)
            return false;
        const auto allows = [&](TokenId token) {
            llama_token_data single = {token, 0.0f, 0.0f};
            llama_token_data_array candidates = {&single, 1, -1, false};
            llama_sampler_apply(sampler.get(), &candidates);
            return single.logit > -1.0f;
        };
        for (const TokenId token : shared_vocabulary->encode(text, false, false)) {
            if (!allows(token))
                return false;
            llama_sampler_accept(sampler.get(), token);
        }
        return allows(shared_vocabulary->end_of_generation_tokens().front());
    }

    static bool accepts(const std::string& schema, const std::string& text) {
        const Result<std::string> grammar = json_schema_grammar(schema);
        EXPECT_TRUE(grammar.has_value()) << schema << ": " << grammar.error().message;
        return grammar && grammar_accepts(*grammar, text);
    }

    static LlamaVocabulary* shared_vocabulary;
};
LlamaVocabulary* JsonSchemaGrammarTest::shared_vocabulary = nullptr;

struct Case {
    const char* schema;
    std::vector<const char*> good;
    std::vector<const char*> bad;
};

TEST_F(JsonSchemaGrammarTest, AcceptsWhatTheSchemaAllowsAndNothingElse) {
    const std::vector<Case> cases = {
        {R"({"type":"integer"})", {"0", "-17", "123"}, {"", "01", "1.5", "x", "\"1\"", "1 2"}},
        {R"({"type":"number"})", {"0", "-1.5", "2e10", "1.25E-3"}, {".5", "1.", "1e", "--1"}},
        {R"({"type":"boolean"})", {"true", "false"}, {"True", "1", "tru"}},
        {R"({"type":"null"})", {"null"}, {"nul", "0"}},
        {R"({"type":"string"})",
         {R"("")", R"("a \"b\" \n \u00e9")"},
         {R"(")", R"("a)", "\"a\nb\"", R"("\x")", "a"}},
        {R"({"type":"string","minLength":2,"maxLength":3})",
         {R"("ab")", R"("abc")"},
         {R"("a")", R"("abcd")"}},
        {R"({"type":"string","format":"date"})",
         {R"("2026-12-01")"},
         {R"("2026-13-01")", R"("x")"}},
        {R"({"type":"string","format":"uuid"})",
         {R"("123e4567-e89b-12d3-a456-426614174000")"},
         {R"("123e4567")"}},
        {R"({"enum":["red","green",3,null]})", {R"("red")", "3", "null"}, {R"("blue")", "red"}},
        {R"({"const":{"a":[1]}})", {R"({"a":[1]})"}, {R"({"a":[2]})"}},
        {R"({"type":["string","null"]})", {R"("x")", "null"}, {"1", "true"}},
        {R"({"anyOf":[{"type":"integer"},{"type":"boolean"}]})", {"4", "true"}, {R"("4")"}},
        {R"({"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":3})",
         {"[1]", "[1, 2,3]", "[ 1 ]"},
         {"[]", "[1,2,3,4]", "[1,]", "[\"a\"]"}},
        {R"({"type":"array","items":{"type":"integer"},"maxItems":0})", {"[]"}, {"[1]"}},
        {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}]})",
         {R"([1,"a"])"},
         {"[1]", R"(["a",1])"}},
        {R"({})", {"1", R"({"a":[1,{"b":null}]})", "[]"}, {"{", "a"}},
        {R"({"type":"object"})", {"{}", R"({"a":1,"b":{}})"}, {"[]", R"({"a"})"}},
        {R"({"type":"object","additionalProperties":{"type":"integer"}})",
         {"{}", R"({"a":1,"b":2})"},
         {R"({"a":"x"})"}},
        {R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"a":1})"}},
    };
    for (const Case& one : cases) {
        for (const char* text : one.good)
            EXPECT_TRUE(accepts(one.schema, text)) << one.schema << " must accept " << text;
        for (const char* text : one.bad)
            EXPECT_FALSE(accepts(one.schema, text)) << one.schema << " must refuse " << text;
    }
}

TEST_F(JsonSchemaGrammarTest, PropertiesComeInOrderAndOptionalOnesMayBeMissing) {
    const std::string schema =
        R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"},)"
        R"("c":{"type":"integer"}},"required":["b"]})";
    for (const char* good : {R"({"b":1})", R"({"a":1,"b":2})", R"({"b":1,"c":2})",
                             R"({"a":1,"b":2,"c":3})", R"({ "a": 1, "b": 2 })"})
        EXPECT_TRUE(accepts(schema, good)) << good;
    for (const char* bad : {"{}", R"({"a":1})", R"({"b":1,"a":2})", R"({"b":1,})",
                            R"({"d":1,"b":1})", R"({,"b":1})", R"({"b":1,"c":2,"b":3})"})
        EXPECT_FALSE(accepts(schema, bad)) << bad;
    const std::string none_required =
        R"({"properties":{"a":{"type":"integer"},"b":{"type":"integer"}}})";
    for (const char* good : {"{}", R"({"a":1})", R"({"b":1})", R"({"a":1,"b":2})"})
        EXPECT_TRUE(accepts(none_required, good)) << good;
    EXPECT_FALSE(accepts(none_required, R"({"b":1,"a":2})"));
}

TEST_F(JsonSchemaGrammarTest, ReferencesMayRecur) {
    const std::string schema =
        R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{)"
        R"("value":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},)"
        R"("required":["value","next"]}}})";
    EXPECT_TRUE(accepts(schema, R"({"value":1,"next":null})"));
    EXPECT_TRUE(accepts(schema, R"({"value":1,"next":{"value":2,"next":null}})"));
    EXPECT_FALSE(accepts(schema, R"({"value":1,"next":2})"));
}

TEST_F(JsonSchemaGrammarTest, AllOfIsOneSchema) {
    const std::string schema =
        R"({"allOf":[{"$ref":"#/$defs/a"},)"
        R"({"properties":{"y":{"type":"integer"}},"required":["y"]}],"$defs":{"a":)"
        R"({"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}}})";
    EXPECT_TRUE(accepts(schema, R"({"x":1,"y":2})"));
    EXPECT_FALSE(accepts(schema, R"({"x":1})"));
}

TEST_F(JsonSchemaGrammarTest, IntegersStayWithinTheirLimits) {
    const std::vector<std::pair<int64_t, int64_t>> ranges = {
        {0, 0},  {0, 9},     {3, 7},    {0, 10}, {5, 123},
        {-5, 5}, {-120, -7}, {99, 101}, {-1, 0}, {1, 1000}};
    for (const auto& [low, high] : ranges) {
        const std::string grammar = "root ::= " + integer_range_grammar(low, high) + "\n";
        for (int64_t n = low - 30; n <= high + 30; n += 1 + (high - low) / 97)
            EXPECT_EQ(grammar_accepts(grammar, std::to_string(n)), n >= low && n <= high)
                << n << " in " << low << " .. " << high;
        for (const int64_t n : {low - 1, low, high, high + 1})
            EXPECT_EQ(grammar_accepts(grammar, std::to_string(n)), n >= low && n <= high)
                << n << " in " << low << " .. " << high;
        EXPECT_FALSE(grammar_accepts(grammar, "-0"));
        EXPECT_FALSE(grammar_accepts(grammar, "00"));
    }
    EXPECT_TRUE(accepts(R"({"type":"integer","minimum":18})", "18"));
    EXPECT_TRUE(accepts(R"({"type":"integer","minimum":18})", "4711"));
    EXPECT_FALSE(accepts(R"({"type":"integer","minimum":18})", "17"));
    EXPECT_FALSE(accepts(R"({"type":"integer","exclusiveMaximum":10})", "10"));
}

TEST_F(JsonSchemaGrammarTest, RefusesWhatItCanNotKeepByName) {
    const std::vector<std::pair<const char*, const char*>> cases = {
        {R"({"type":"string","pattern":"^a$"})", "pattern"},
        {R"({"type":"number","minimum":1})", "minimum"},
        {R"({"type":"object","patternProperties":{}})", "patternProperties"},
        {R"({"not":{"type":"string"}})", "not"},
        {R"({"type":"array","uniqueItems":true})", "uniqueItems"},
        {R"({"type":"string","maxLength":100000})", "maxLength"},
        {R"({"type":"strange"})", "strange"},
        {R"({"$ref":"http://example.org/schema"})", "$ref"},
        {R"({"$ref":"#/$defs/none"})", "$ref"},
        {R"({"type":"object","properties":{"a":{"type":"string","pattern":"x"}}})", "/a"},
        {R"({"type":"object","required":["a"]})", "required"},
        {R"({"type":"array","minItems":4,"maxItems":2})", "maxItems"},
        {R"({"type":"integer","minimum":4,"maximum":2})", "minimum"},
        {R"({"anyOf":[]})", "anyOf"},
        {R"({"enum":5})", "enum"},
        {R"(false)", "false"},
        {R"([1])", "object"},
        {R"({)", "parse"},
    };
    for (const auto& [schema, word] : cases) {
        const Result<std::string> grammar = json_schema_grammar(schema);
        ASSERT_FALSE(grammar.has_value()) << schema;
        EXPECT_EQ(grammar.error().code, ErrorCode::kInvalidArgument);
        EXPECT_TRUE(grammar.error().message.contains(word)) << grammar.error().message;
    }
}

TEST_F(JsonSchemaGrammarTest, DeepAndLargeSchemasEnd) {
    std::string deep = R"({"type":"integer"})";
    for (int i = 0; i < 200; ++i)
        deep = R"({"type":"array","items":)" + deep + "}";
    EXPECT_FALSE(json_schema_grammar(deep).has_value());
    nlohmann::json wide = {{"type", "object"}};
    for (int i = 0; i < 3000; ++i)
        wide["properties"]["p" + std::to_string(i)] = {{"type", "integer"}};
    EXPECT_FALSE(json_schema_grammar(wide.dump()).has_value());
}

TEST_F(JsonSchemaGrammarTest, NamesMayHoldAnything) {
    const std::string schema =
        R"({"type":"object","properties":{"a \"b\" \\ \n \u00e9":{"type":"null"}},)"
        R"("required":["a \"b\" \\ \n \u00e9"]})";
    EXPECT_TRUE(accepts(schema, R"({"a \"b\" \\ \n )"
                                "\xC3\xA9"
                                R"(":null})"));
}

TEST_F(JsonSchemaGrammarTest, ToolCallsNameOneOfTheTools) {
    const std::vector<ToolSchema> tools = {
        {"weather", R"({"type":"object","properties":{"city":{"$ref":"#/$defs/c"}},)"
                    R"("required":["city"],"$defs":{"c":{"enum":["Rome"]}}})"},
        {"time", ""}};
    const Result<std::string> grammar = tool_call_grammar(
        tools, {.before = R"("{name}: ")", .after = R"(";")"}, {.before = R"("> ")"}, R"("\n")");
    ASSERT_TRUE(grammar.has_value()) << grammar.error().message;
    EXPECT_TRUE(grammar_accepts(*grammar, R"(> weather: {"city":"Rome"};)"));
    EXPECT_TRUE(grammar_accepts(*grammar, "> time: {};\nweather: {\"city\":\"Rome\"};"));
    EXPECT_FALSE(grammar_accepts(*grammar, R"(> weather: {"city":"Oslo"};)"));
    EXPECT_FALSE(grammar_accepts(*grammar, "> other: {};"));
    EXPECT_FALSE(grammar_accepts(*grammar, "time: {};"));
}

}  // namespace
}  // namespace bevy
