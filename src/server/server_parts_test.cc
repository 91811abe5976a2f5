// The small parts: keys, errors, JSON, admission, the stream of tokens.
#include <gtest/gtest.h>

#include <string>

#include "server/admission.h"
#include "server/api_error.h"
#include "server/api_keys.h"
#include "server/json_body.h"
#include "server/test_setup.h"
#include "server/token_stream.h"

namespace bevy {
namespace {

TEST(ApiKeys, OnlyTheExactKeyOpens) {
    const ApiKeys keys({"alpha", "beta"});
    EXPECT_TRUE(keys.needed());
    EXPECT_FALSE(ApiKeys({}).needed());
    for (const char* good : {"Bearer alpha", "Bearer beta", "alpha"})
        EXPECT_TRUE(keys.opens(good)) << good;
    for (const char* bad : {"", "Bearer ", "Bearer alph", "Bearer alphaalpha", "Bearer alphabeta",
                            "Bearer  alpha", "bearer alpha", "ALPHA", "gamma"})
        EXPECT_FALSE(keys.opens(bad)) << bad;
}

TEST(ApiError, KindsOfErrorsHaveTheirStatusAndType) {
    const auto kind = [](ErrorCode code) {
        const ApiError error = api_error({code, "cause", "remedy"});
        EXPECT_EQ(error.message, "cause; remedy");
        return std::to_string(error.status) + " " + error.type;
    };
    EXPECT_EQ(kind(ErrorCode::kInvalidArgument), "400 invalid_request_error");
    EXPECT_EQ(kind(ErrorCode::kBudget), "400 invalid_request_error");
    EXPECT_EQ(kind(ErrorCode::kUnsupported), "501 not_supported_error");
    EXPECT_EQ(kind(ErrorCode::kQueueFull), "503 unavailable_error");
    EXPECT_EQ(kind(ErrorCode::kIo), "500 server_error");
    EXPECT_EQ(http_error(404).type, "not_found_error");
    EXPECT_EQ(http_error(413).status, 413);
    EXPECT_EQ(error_json(prompt_too_long(9, 8)),
              R"({"error":{"code":400,"message":"the prompt has 9 tokens, but the context of a )"
              R"(request holds 8, of which at least one is for the reply","type":)"
              R"("exceed_context_size_error","n_prompt_tokens":9,"n_ctx":8}})");
    EXPECT_EQ(error_json(invalid_request("\xFF")), R"({"error":{"code":400,"message":")"
                                                   "\xEF\xBF\xBD"
                                                   R"(","type":"invalid_request_error"}})");
}

TEST(JsonBody, HostileTextIsRefusedBeforeItIsBuilt) {
    EXPECT_TRUE(parse_json(R"({"a":[1,2,{"b":null}]})").has_value());
    EXPECT_FALSE(parse_json("{\"a\":1,}").has_value());
    EXPECT_FALSE(parse_json("\"\xFF\"").has_value());
    EXPECT_FALSE(parse_json(std::string(1'000'000, '[')).has_value());
    EXPECT_FALSE(parse_json(std::string(70, '[') + std::string(70, ']')).has_value());
    std::string many = "{";
    for (int i = 0; i < 100'000; ++i)
        many += "\"k" + std::to_string(i) + "\":0,";
    const auto refused = parse_json(many + "\"z\":0}");
    ASSERT_FALSE(refused.has_value());
    EXPECT_TRUE(refused.error().message.contains("2048"));
    EXPECT_FALSE(parse_json_object("[]").has_value());
}

TEST(JsonFields, KeepTheFirstErrorAndLeaveTargetsAlone) {
    const Json json = {{"a", 3.0}, {"b", "x"}, {"c", nullptr}, {"big", 1e300}};
    JsonFields fields(json);
    int32_t a = 0;
    int32_t c = 7;
    fields.integer("a", a, 0, 5);
    fields.integer("c", c, 0, 5);
    fields.integer("missing", c, 0, 5);
    EXPECT_FALSE(fields.failed());
    EXPECT_EQ(a, 3);
    EXPECT_EQ(c, 7);
    fields.integer("b", c, 0, 5);
    fields.integer("big", c, 0, 5);
    ASSERT_TRUE(fields.failed());
    EXPECT_EQ(fields.error().message, "Field 'b': must be a number, but is a string");
    EXPECT_EQ(c, 7);
}

TEST(Admission, LetsInAllOrNone) {
    Admission admission(2, 3);
    EXPECT_EQ(admission.enter(4), Admission::Answer::kCome);
    EXPECT_EQ(admission.enter(2), Admission::Answer::kFull);
    EXPECT_EQ(admission.enter(1), Admission::Answer::kCome);
    admission.leave({.tokens_prompt = 5, .tokens_generated = 7});
    EXPECT_EQ(admission.inside(), 4u);
    EXPECT_EQ(admission.totals().sequence_tokens_max, 12u);
    admission.turn_back(4);
    EXPECT_EQ(admission.inside(), 0u);
    admission.close();
    EXPECT_EQ(admission.enter(1), Admission::Answer::kClosed);
}

TEST(TokenStream, AReaderWhoFallsBehindLosesTheRequestAndNothingElse) {
    ServerSetup server;
    ChangeSignal signal;
    TokenStream stream(*server.vocabulary, {}, signal);
    size_t taken = 0;
    while (stream.on_token(kOnlyToken))
        ++taken;
    EXPECT_EQ(taken, kUnreadTokensMax);
    stream.on_finish(FinishReason::kStop, {}, std::nullopt);
    EXPECT_EQ(stream.take().size(), kUnreadTokensMax);
    ASSERT_TRUE(stream.end().has_value());
    ASSERT_TRUE(stream.end()->error.has_value());
    EXPECT_TRUE(stream.end()->error->message.contains("slowly"));
}

}  // namespace
}  // namespace bevy
