#include "server/control_routes.h"

#include <gtest/gtest.h>

#include <string>

#include "server/static_files.h"
#include "server/test_setup.h"

namespace bevy {
namespace {

TEST(ControlRoutes, HealthTellsTheProgressOfLoading) {
    ServerSetup server;
    EXPECT_EQ(server.call("GET", "/health").body, R"({"status":"ok"})");
    server.state.model = nullptr;
    server.state.loaded_bytes = 25;
    server.state.loading_bytes = 100;
    const HttpReply loading = server.call("GET", "/health");
    EXPECT_EQ(loading.status, 503);
    const Json json = Json::parse(loading.body);
    EXPECT_EQ(json["error"],
              Json({{"message", "Loading model"}, {"type", "unavailable_error"}, {"code", 503}}));
    EXPECT_EQ(json["progress"], 0.25);
    EXPECT_EQ(server.call("GET", "/v1/models").status, 503);
    EXPECT_EQ(server.post("/completion", "{}").status, 503);
}

TEST(ControlRoutes, TokensGoInAndComeBack) {
    ServerSetup server;
    const Json tokens = server.json("/tokenize", R"({"content":"Once upon a time"})");
    EXPECT_EQ(server.json("/detokenize", tokens.dump())["content"], "Once upon a time");
    const Json pieces = server.json("/tokenize", R"({"content":"Once","with_pieces":true})");
    EXPECT_EQ(pieces["tokens"][0]["piece"], "Once");
    EXPECT_EQ(server.json("/tokenize", "{}")["tokens"], Json::array());
    EXPECT_TRUE(server.refusal("/detokenize", R"({"tokens":[-1]})").contains("4095"));
}

TEST(ControlRoutes, EndpointsThatAreOffSaySo) {
    ServerSetup off({.metrics = false, .slots = false});
    EXPECT_EQ(off.call("GET", "/metrics").status, 501);
    EXPECT_EQ(off.call("GET", "/slots").status, 501);
    EXPECT_EQ(off.call("GET", "/engine").status, 501);
    EXPECT_EQ(off.post("/v1/embeddings", "{}").status, 501);
    EXPECT_EQ(off.post("/props", "{}").status, 501);
}

TEST(ControlRoutes, MetricsAndSlotsShowTheEngine) {
    ServerSetup server({.metrics = true});
    server.post("/completion", R"({"prompt":"x","n_predict":3})");
    const std::string metrics = server.call("GET", "/metrics").body;
    for (const char* line :
         {"llamacpp:tokens_predicted_total 3\n", "llamacpp:prompt_tokens_total 1\n",
          "llamacpp:requests_processing 0\n", "llamacpp:requests_deferred 0\n",
          "bevy:expert_hits_total ", "bevy:sequences{state=\"idle\"} 4\n", "bevy:queue_length 0\n",
          "# TYPE bevy:read_bytes_total counter\n"})
        EXPECT_TRUE(metrics.contains(line)) << line << metrics;
    const Json slots = Json::parse(server.call("GET", "/slots").body);
    ASSERT_EQ(slots.size(), 4u);
    EXPECT_EQ(slots[3]["id"], 3);
    EXPECT_EQ(slots[3]["is_processing"], false);
    EXPECT_EQ(Json::parse(server.call("GET", "/props").body)["total_slots"], 4);
}

TEST(ControlRoutes, TheEngineIsShownWithItsCounters) {
    ServerSetup server;
    server.post("/completion", R"({"prompt":"x","n_predict":3})");
    const Json engine = Json::parse(server.call("GET", "/engine").body);
    EXPECT_EQ(engine["requests"], Json::array());
    EXPECT_EQ(engine["slots"], 4);
    EXPECT_EQ(engine["tokens"], Json({{"prompt", 1}, {"generated", 3}}));
    EXPECT_GT(engine["bytes_read"].get<uint64_t>() + engine["expert_misses"].get<uint64_t>(), 0u);
    const Json& experts = engine["experts"];
    EXPECT_EQ(experts["in_memory"].size(), experts["layers"].get<size_t>());
    for (const Json& count : experts["in_memory"])
        EXPECT_LE(count.get<uint32_t>(), experts["per_layer"].get<uint32_t>());
    EXPECT_GE(engine["seconds"]["wall"].get<double>(), engine["seconds"]["active"].get<double>());
}

TEST(ControlRoutes, ModelsNameTheModel) {
    ServerSetup server({.aliases = {"a", "b"}});
    const Json models = Json::parse(server.call("GET", "/v1/models").body);
    EXPECT_EQ(models["data"][0]["id"], "b");
    EXPECT_EQ(models["data"][0]["meta"]["n_vocab"], 4096);
    EXPECT_EQ(models["models"][0]["name"], "b");
}

TEST(StaticFiles, ThePageIsServedUnderAStrictPolicy) {
    EXPECT_TRUE(is_static_file("/"));
    EXPECT_FALSE(is_static_file("/v1/models"));
    for (const HttpRoute& route : static_routes()) {
        const HttpReply reply = route.handler({});
        EXPECT_EQ(reply.headers[0].first, "Content-Security-Policy");
        EXPECT_TRUE(reply.headers[0].second.starts_with("default-src 'none'"));
    }
}

}  // namespace
}  // namespace bevy
