// Whatever bytes a body has, every endpoint answers with a well-formed reply and frees what it
// took.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "base/prng.h"
#include "server/test_setup.h"

namespace bevy {
namespace {

#ifdef BEVY_SANITIZED
constexpr uint64_t kSeeds = 300;
#else
constexpr uint64_t kSeeds = 1500;
#endif

// NOLINTBEGIN(bugprone-suspicious-missing-comma): long bodies go on in the next line
const std::vector<std::string>& bodies() {
    static const std::vector<std::string> all = {
        R"({"prompt":"Once upon a time","n_predict":4,"temperature":0.5,"seed":7,"stream":true})",
        R"({"prompt":["a",[1,2,"b"]],"max_tokens":3,"logprobs":2,"n":2,"stop":["x","y"]})",
        R"({"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text",)"
        R"("text":"Hi"}]},{"role":"assistant","tool_calls":[{"id":"1","function":{"name":"f",)"
        R"("arguments":"{\"a\":1}"}}]},{"role":"tool","tool_call_id":"1","content":"2"}],)"
        R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object",)"
        R"("properties":{"a":{"type":"integer","minimum":1,"maximum":9}}}}}],)"
        R"("tool_choice":"required","max_tokens":3,"stream":true,)"
        R"("stream_options":{"include_usage":true}})",
        R"({"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema",)"
        R"("json_schema":{"schema":{"type":"object","properties":{"a":{"type":"string"},"b":)"
        R"({"$ref":)"
        R"("#/$defs/x"}},"required":["a"],"$defs":{"x":{"enum":[1,"a"]}}}}},"max_tokens":2})",
        R"({"input":[{"role":"user","content":"x"},{"type":"function_call","call_id":"c","name":)"
        R"("f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"1"}],)"
        R"("instructions":"be","max_output_tokens":2,"stream":true})",
        R"({"content":"Once","with_pieces":true,"tokens":[1,2,3],"add_special":true})",
        R"({"prompt":"x","grammar":"root ::= \"a\" | [b-d]+","n_predict":2,)"
        R"("logit_bias":[[1,false],["x",2.5]],"samplers":["top_k","temperature"],)"
        R"("dry_sequence_breakers":["\n"]})",
    };
    return all;
}
// NOLINTEND(bugprone-suspicious-missing-comma)

const std::vector<std::string>& values() {
    static const std::vector<std::string> all = {"null",
                                                 "true",
                                                 "-1",
                                                 "0",
                                                 "1e999",
                                                 "18446744073709551616",
                                                 "\"\"",
                                                 "[]",
                                                 "{}",
                                                 "\"\\u0000\"",
                                                 "[[]]",
                                                 "1e-9",
                                                 "9007199254740993",
                                                 "\"\\ud800\"",
                                                 R"({"type":["string","null"]})",
                                                 R"({"$ref":"#"})",
                                                 R"([{"type":"text"}])"};
    return all;
}

// Somewhere in the text: bytes changed, lost, doubled, or a value in place of another.
void mutate(Prng& prng, std::string& body) {
    for (uint64_t n = prng.between(1, 4); n > 0; --n) {
        const size_t at = prng.below(body.size() + 1);
        const size_t length = prng.below(12);
        switch (prng.below(5)) {
            case 0:
                if (at < body.size())
                    body[at] = static_cast<char>(prng.below(256));
                break;
            case 1:
                body.erase(at, length);
                break;
            case 2:
                body.insert(at, body.substr(body.size() - std::min(length, body.size())));
                break;
            default: {
                // Behind a colon: what stands there becomes something else.
                const size_t colon = body.find(':', at);
                if (colon == std::string::npos)
                    break;
                const size_t end = body.find_first_of(",}]", colon);
                body.replace(colon + 1, (end == std::string::npos ? body.size() : end) - colon - 1,
                             values()[prng.below(values().size())]);
            }
        }
    }
}

void check(const HttpReply& reply, const std::string& sent) {
    EXPECT_TRUE(reply.status == 200 || reply.status == 400 || reply.status == 501) << sent;
    if (reply.content_type == "text/event-stream") {
        EXPECT_TRUE(reply.body.ends_with("\n\n")) << sent;
        return;
    }
    const Json json = Json::parse(reply.body, nullptr, false);
    EXPECT_FALSE(json.is_discarded()) << sent << "\n" << reply.body;
    if (reply.status != 200) {
        EXPECT_FALSE(json["error"]["message"].get<std::string>().empty()) << sent;
    }
}

TEST(BodyFuzz, EveryBodyGetsAnAnswer) {
    const std::string hermes =
        "{% for m in messages %}{{ m.role }}{{ m.content }}{% for c in m.tool_calls or [] %}"
        "{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}{{ tools | tojson }}"
        "<tool_call><think>";
    ServerSetup server({}, hermes);
    const char* given = std::getenv("BEVY_SEEDS");
    const uint64_t seeds = given == nullptr ? kSeeds : std::strtoull(given, nullptr, 10);
    const std::vector<std::string> paths = {
        "/completion", "/v1/completions", "/v1/chat/completions", "/v1/responses",
        "/tokenize",   "/detokenize",     "/apply-template"};
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
        Prng prng(seed);
        std::string body = bodies()[prng.below(bodies().size())];
        mutate(prng, body);
        SCOPED_TRACE("seed " + std::to_string(seed));
        check(server.post(paths[prng.below(paths.size())], body), body);
        ASSERT_EQ(server.state.admission.inside(), 0u) << body;
    }
}

TEST(BodyFuzz, TheBodiesThemselvesAreValid) {
    ServerSetup server({}, "{% for m in messages %}{{ m.content }}{% endfor %}<tool_call>");
    EXPECT_EQ(server.post("/completion", bodies()[0]).status, 200);
    EXPECT_EQ(server.post("/v1/completions", bodies()[1]).status, 200);
    EXPECT_EQ(server.post("/v1/chat/completions", bodies()[2]).status, 200);
    EXPECT_EQ(server.post("/v1/chat/completions", bodies()[3]).status, 200);
    EXPECT_EQ(server.post("/v1/responses", bodies()[4]).status, 200);
    EXPECT_EQ(server.post("/tokenize", bodies()[5]).status, 200);
    EXPECT_EQ(server.post("/completion", bodies()[6]).status, 200);
}

}  // namespace
}  // namespace bevy
