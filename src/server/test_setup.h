// A server's handlers on a model that is none: the demo model's vocabulary, and an engine whose
// every step takes no time and whose every token is the same. For unit tests and fuzzing, without
// sockets.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "engine/test_doubles.h"
#include "server/control_routes.h"
#include "server/generation_routes.h"
#include "server/json_body.h"
#include "server/server_state.h"
#include "text/llama_vocabulary.h"

namespace bevy {

// What the engine of this file generates, always.
constexpr TokenId kOnlyToken = 1;

class ServerSetup {
public:
    explicit ServerSetup(const ServerOptions& options = {}, const std::string& chat_template = {})
        : state(options, 4) {
        auto opened = LlamaVocabulary::open(BEVY_SOURCE_DIR "/models/bevy-tiny-moe-Q8_0.gguf");
        EXPECT_TRUE(opened) << (opened ? "" : opened.error().text());
        vocabulary = std::move(*opened);
        ChatTemplateOptions template_options;
        if (!chat_template.empty())
            template_options.source = chat_template;
        auto made = ChatTemplate::create(template_options);
        EXPECT_TRUE(made) << (made ? "" : made.error().text());
        conversation = std::make_unique<ChatTemplate>(std::move(*made));
        auto started = EngineThread::start({.core = small_core(),
                                            .context_per_sequence = kContext,
                                            .vocabulary = vocabulary->vocabulary_size(),
                                            .mailbox_max = 100},
                                           link, compute, clock);
        EXPECT_TRUE(started) << (started ? "" : started.error().text());
        engine = std::move(*started);
        model = {.facts = {.path = "none.gguf", .type = "Q8_0"},
                 .vocabulary = vocabulary.get(),
                 .chat_template = conversation.get(),
                 .engine = engine.get(),
                 .context = kContext,
                 .parallel = 4};
        state.model = &model;
        routes = generation_routes(state);
        for (HttpRoute& route : control_routes(state))
            routes.push_back(std::move(route));
    }

    HttpReply call(const std::string& method, const std::string& path,
                   const std::string& body = {}) {
        for (const HttpRoute& route : routes) {
            if (route.method != method || route.path != path)
                continue;
            HttpRequest request;
            request.method = method;
            request.path = path;
            request.body = body;
            request.client_gone = client_gone;
            HttpReply reply = route.handler(request);
            while (reply.stream) {
                std::string piece;
                const BodyStream::State now = reply.stream->next(piece);
                reply.body += piece;
                if (now == BodyStream::State::kEnded)
                    reply.stream.reset();
            }
            return reply;
        }
        ADD_FAILURE() << "no route " << method << " " << path;
        return {};
    }
    HttpReply post(const std::string& path, const std::string& body) {
        return call("POST", path, body);
    }
    // The JSON of a reply that must have this status.
    Json json(const std::string& path, const std::string& body, int status = 200) {
        const HttpReply reply = post(path, body);
        EXPECT_EQ(reply.status, status) << reply.body;
        return Json::parse(reply.body);
    }
    // "error.message" of a reply that must have this status.
    std::string refusal(const std::string& path, const std::string& body, int status = 400) {
        return json(path, body, status)["error"]["message"].get<std::string>();
    }

    static constexpr uint32_t kContext = 64;

    InstantLink link;
    InstantCompute compute;
    SystemClock clock;
    ServerState state;
    std::unique_ptr<LlamaVocabulary> vocabulary;
    std::unique_ptr<ChatTemplate> conversation;
    ServedModel model;
    std::vector<HttpRoute> routes;
    std::function<bool()> client_gone = [] { return false; };
    std::unique_ptr<EngineThread> engine;
};

}  // namespace bevy
