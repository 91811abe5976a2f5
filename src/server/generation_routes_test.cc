#include "server/generation_routes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/test_setup.h"

namespace bevy {
namespace {

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kHi = R"("messages":[{"role":"user","content":"Hi"}])";

std::vector<std::string> events_of(const std::string& body) {
    std::vector<std::string> events;
    std::string_view rest = body;
    while (!rest.empty()) {
        const size_t end = rest.find("\n\n");
        if (end == std::string_view::npos) {
            ADD_FAILURE() << "an event that does not end: " << rest;
            break;
        }
        events.emplace_back(rest.substr(0, end));
        rest.remove_prefix(end + 2);
    }
    return events;
}

TEST(GenerationRoutes, ACompletionHasTheShapeOfLlamaServers) {
    ServerSetup server;
    const Json reply = server.json(
        "/completion", R"({"prompt":"Once","n_predict":3,"temperature":0,"return_tokens":true})");
    EXPECT_EQ(reply["content"], "\"\"\"");
    EXPECT_EQ(reply["tokens"], Json::array({1, 1, 1}));
    EXPECT_EQ(reply["stop_type"], "limit");
    EXPECT_EQ(reply["tokens_evaluated"], 1);
    EXPECT_EQ(reply["prompt"], "Once");
    EXPECT_EQ(reply["generation_settings"]["n_predict"], 3);
    EXPECT_EQ(reply["timings"]["predicted_n"], 3);
    EXPECT_TRUE(reply["timings"].contains("experts_wait_ms"));
}

TEST(GenerationRoutes, AStopStringEndsTheText) {
    ServerSetup server;
    const Json reply = server.json(
        "/completion", R"({"prompt":"Once","n_predict":9,"temperature":0,"stop":["\"\"\""]})");
    EXPECT_EQ(reply["content"], "");
    EXPECT_EQ(reply["stop_type"], "word");
    EXPECT_EQ(reply["stopping_word"], "\"\"\"");
    EXPECT_EQ(reply["tokens_predicted"], 3);
}

TEST(GenerationRoutes, AChatHasTheShapeOfOpenAis) {
    ServerSetup server({.aliases = {"tiny", "small"}});
    const Json reply =
        server.json(kChat, std::string("{") + kHi + R"(,"max_tokens":2,"temperature":0,"n":2})");
    EXPECT_EQ(reply["object"], "chat.completion");
    EXPECT_EQ(reply["model"], "small");
    EXPECT_TRUE(reply["id"].get<std::string>().starts_with("chatcmpl-"));
    ASSERT_EQ(reply["choices"].size(), 2u);
    EXPECT_EQ(reply["choices"][1]["index"], 1);
    EXPECT_EQ(reply["choices"][1]["finish_reason"], "length");
    EXPECT_EQ(reply["choices"][1]["message"]["content"], "\"\"");
    EXPECT_EQ(reply["usage"]["completion_tokens"], 4);
    EXPECT_EQ(reply["usage"]["total_tokens"], reply["usage"]["prompt_tokens"].get<int>() + 4);
}

TEST(GenerationRoutes, AStreamIsEventsAndADone) {
    ServerSetup server;
    const HttpReply reply =
        server.post(kChat, std::string("{") + kHi +
                               R"(,"max_tokens":2,"temperature":0,"stream":true,)"
                               R"("stream_options":{"include_usage":true}})");
    EXPECT_EQ(reply.content_type, "text/event-stream");
    const std::vector<std::string> events = events_of(reply.body);
    ASSERT_EQ(events.size(), 6u) << reply.body;
    std::vector<Json> chunks;
    for (size_t i = 0; i + 1 < events.size(); ++i) {
        ASSERT_TRUE(events[i].starts_with("data: "));
        chunks.push_back(Json::parse(events[i].substr(6)));
        EXPECT_EQ(chunks[i]["object"], "chat.completion.chunk");
        EXPECT_EQ(chunks[i]["id"], chunks[0]["id"]);
    }
    EXPECT_EQ(chunks[0]["choices"][0]["delta"],
              Json({{"role", "assistant"}, {"content", nullptr}}));
    EXPECT_EQ(chunks[1]["choices"][0]["delta"]["content"], "\"");
    EXPECT_EQ(chunks[3]["choices"][0]["finish_reason"], "length");
    EXPECT_EQ(chunks[4]["choices"], Json::array());
    EXPECT_EQ(chunks[4]["usage"]["completion_tokens"], 2);
    EXPECT_EQ(events.back(), "data: [DONE]");
}

TEST(GenerationRoutes, ProbabilitiesComeWithTheirTokens) {
    ServerSetup server;
    const Json reply = server.json(
        kChat, std::string("{") + kHi +
                   R"(,"max_tokens":2,"temperature":0,"logprobs":true,"top_logprobs":2})");
    const Json& content = reply["choices"][0]["logprobs"]["content"];
    ASSERT_EQ(content.size(), 2u);
    EXPECT_EQ(content[0]["id"], kOnlyToken);
    EXPECT_EQ(content[0]["token"], "\"");
    EXPECT_EQ(content[0]["bytes"], Json::array({34}));
    // The engine's logits are 0 and 1.
    EXPECT_NEAR(content[0]["logprob"].get<double>(), -0.3132617, 1e-6);
    EXPECT_EQ(content[0]["top_logprobs"].size(), 2u);
    EXPECT_NEAR(content[0]["top_logprobs"][1]["logprob"].get<double>(), -1.3132617, 1e-6);
}

TEST(GenerationRoutes, ResponsesHaveItemsAndNamedEvents) {
    ServerSetup server;
    const Json reply =
        server.json("/v1/responses", R"({"input":"Hi","max_output_tokens":2,"temperature":0})");
    EXPECT_EQ(reply["object"], "response");
    EXPECT_EQ(reply["output"][0]["content"][0]["text"], "\"\"");
    EXPECT_EQ(reply["usage"]["output_tokens"], 2);
    const std::string stream =
        server.post("/v1/responses", R"({"input":"Hi","max_output_tokens":2,"stream":true})").body;
    EXPECT_TRUE(stream.starts_with("event: response.created\n")) << stream;
    EXPECT_TRUE(stream.contains("event: response.output_text.delta\n"));
    EXPECT_TRUE(stream.contains("event: response.completed\n"));
}

TEST(GenerationRoutes, MistakesAreNamedWithTheirFieldAndRange) {
    ServerSetup server;
    const std::vector<std::pair<const char*, std::vector<const char*>>> cases = {
        {R"({)", {"JSON", "line 1"}},
        {R"([])", {"object", "array"}},
        {R"({})", {"prompt"}},
        {R"({"prompt":5})", {"prompt", "number"}},
        {R"({"prompt":""})", {"no tokens"}},
        {R"({"prompt":[1,99999]})", {"4095"}},
        {R"({"prompt":[1,-1]})", {"4095"}},
        {R"({"prompt":[1,1.5]})", {"4095"}},
        {R"({"prompt":"x","temperature":"hot"})", {"temperature", "number", "string"}},
        {R"({"prompt":"x","temperature":1e9})", {"temperature", "1000"}},
        {R"({"prompt":"x","top_p":-0.1})", {"top_p", "between 0 and 1", "-0.1"}},
        {R"({"prompt":"x","top_k":1.5})", {"top_k", "whole"}},
        {R"({"prompt":"x","n_predict":-2})", {"n_predict", "-1"}},
        {R"({"prompt":"x","n":0})", {"'n'", "between 1 and"}},
        {R"({"prompt":"x","n":100})", {"100 texts"}},
        {R"({"prompt":"x","stop":[1]})", {"stop", "strings"}},
        {R"({"prompt":"x","stream":1})", {"stream", "boolean"}},
        {R"({"prompt":"x","logit_bias":[[1]]})", {"logit_bias", "pairs"}},
        {R"({"prompt":"x","logit_bias":[[1,"a"]]})", {"logit_bias"}},
        {R"({"prompt":"x","logit_bias":[[5000,1]]})", {"logit_bias", "4095"}},
        {R"({"prompt":"x","samplers":["top_p","top_k"]})", {"samplers", "order", "top_k"}},
        {R"({"prompt":"x","mirostat":2})", {"mirostat", "0"}},
        {R"({"prompt":"x","lora":[{"id":1}]})", {"lora"}},
        {R"({"prompt":"x","grammar":"root ::= ("})", {"grammar"}},
        {R"({"prompt":"x","grammar":"root ::= \"a\"","json_schema":{}})", {"grammar"}},
        {R"({"prompt":"x","json_schema":{"type":"string","pattern":"a"}})", {"pattern"}},
        {R"({"prompt":"x","response_format":{"type":"xml"}})", {"response_format", "xml"}},
    };
    for (const auto& [body, words] : cases) {
        const std::string message = server.refusal("/completion", body);
        for (const char* word : words)
            EXPECT_TRUE(message.contains(word)) << body << ": " << message;
    }
    EXPECT_EQ(server.state.admission.inside(), 0u);
}

TEST(GenerationRoutes, MistakesInChatsAreNamed) {
    ServerSetup server;
    const std::vector<std::pair<std::string, const char*>> cases = {
        {R"({})", "messages"},
        {R"({"messages":[]})", "messages"},
        {R"({"messages":["x"]})", "object"},
        {R"({"messages":[{"content":"x"}]})", "role"},
        {R"({"messages":[{"role":"user"}]})", "content"},
        {R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})", "image_url"},
        {R"({"messages":[{"role":"assistant","content":"x"}]})", "answer"},
        {std::string("{") + kHi + R"(,"tools":5})", "tools"},
        {std::string("{") + kHi + R"(,"tools":[{"type":"x"}]})", "tools"},
        {std::string("{") + kHi + R"(,"tools":[{"type":"function","function":{}}]})", "name"},
        {std::string("{") + kHi + R"(,"tool_choice":"maybe"})", "maybe"},
        {std::string("{") + kHi + R"(,"tool_choice":"required"})", "tools"},
        {std::string("{") + kHi + R"(,"top_logprobs":3})", "logprobs"},
        {std::string("{") + kHi + R"(,"chat_template_kwargs":5})", "chat_template_kwargs"},
    };
    for (const auto& [body, word] : cases) {
        const std::string message = server.refusal(kChat, body);
        EXPECT_TRUE(message.contains(word)) << body << ": " << message;
    }
}

TEST(GenerationRoutes, ATemplatesOwnWordsReachTheClient) {
    ServerSetup server({}, "{{ raise_exception('only on Sundays') }}");
    const std::string message = server.refusal(kChat, std::string("{") + kHi + "}");
    EXPECT_TRUE(message.contains("only on Sundays")) << message;
}

TEST(GenerationRoutes, APromptThatIsTooLongHasItsOwnError) {
    ServerSetup server;
    std::string words;
    for (int i = 0; i < 100; ++i)
        words += "word ";
    const Json reply = server.json("/completion", R"({"prompt":")" + words + "\"}", 400);
    EXPECT_EQ(reply["error"]["type"], "exceed_context_size_error");
    EXPECT_EQ(reply["error"]["n_ctx"], 64);
    EXPECT_GT(reply["error"]["n_prompt_tokens"], 64);
}

TEST(GenerationRoutes, RequiredToolsAreCalledByTheTemplatesSyntax) {
    const std::string hermes =
        "{% for m in messages %}{{ m.content }}{% endfor %}{{ tools | tojson }}<tool_call>";
    ServerSetup server({}, hermes);
    const Json applied = server.json(
        "/apply-template",
        std::string("{") + kHi + R"(,"tools":[{"type":"function","function":{"name":"f"}}]})");
    EXPECT_TRUE(applied["prompt"].get<std::string>().contains("\"name\": \"f\"")) << applied;
    ServerSetup plain;
    const std::string message =
        plain.refusal(kChat, std::string("{") + kHi +
                                 R"(,"tools":[{"type":"function","function":{"name":"f"}}],)"
                                 R"("tool_choice":"required"})");
    EXPECT_TRUE(message.contains("template"));
}

TEST(GenerationRoutes, AFullQueueSaysWhenToComeBack) {
    ServerSetup server({.queue_max = 2});
    EXPECT_EQ(server.state.admission.enter(6), Admission::Answer::kCome);
    const HttpReply full = server.post("/completion", R"({"prompt":"x","n_predict":1})");
    EXPECT_EQ(full.status, 503);
    EXPECT_TRUE(full.body.contains("unavailable_error"));
    ASSERT_FALSE(full.headers.empty());
    EXPECT_EQ(full.headers[0].first, "Retry-After");
    server.state.admission.turn_back(6);
    EXPECT_EQ(server.post("/completion", R"({"prompt":"x","n_predict":1})").status, 200);
    server.state.admission.close();
    EXPECT_EQ(server.post("/completion", R"({"prompt":"x","n_predict":1})").status, 503);
}

TEST(GenerationRoutes, AClientWhoGoesAwayFreesEverything) {
    ServerSetup server;
    server.client_gone = [] { return true; };
    for (const char* stream : {"true", "false"})
        server.post("/completion",
                    std::string(R"({"prompt":"x","n_predict":60,"stream":)") + stream + "}");
    EXPECT_EQ(server.state.admission.inside(), 0u);
    EXPECT_EQ(server.state.admission.replies(), 0u);
    EXPECT_TRUE(server.engine->snapshot().requests.empty());
}

TEST(GenerationRoutes, AFailureOfTheModelIsA500WithItsReason) {
    ServerSetup server;
    server.compute.fail_next = true;
    const Json reply =
        server.json("/completion", R"({"prompt":"x","n_predict":3,"temperature":0})", 500);
    EXPECT_EQ(reply["error"]["type"], "server_error");
    EXPECT_TRUE(reply["error"]["message"].get<std::string>().contains("on fire"));
    EXPECT_EQ(server.post("/completion", R"({"prompt":"x","n_predict":3})").status, 200);
}

}  // namespace
}  // namespace bevy
