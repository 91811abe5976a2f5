#include "server/generation_routes.h"

#include <algorithm>
#include <ctime>
#include <format>
#include <utility>

#include "server/chat_request.h"
#include "server/completion_writer.h"
#include "server/event_stream.h"
#include "server/prompt_tokens.h"
#include "server/settings_fields.h"

namespace bevy {
namespace {

using Reply = ApiResult<HttpReply>;

// One request to generate: what all these endpoints have in common.
class Handler {
public:
    Handler(ServerState& state, const ServedModel& model, const HttpRequest& request)
        : state_(state), model_(model), request_(request) {}

    Reply completion(const Json& body, Api api) {
        ApiResult<GenerationSettings> settings =
            read_settings(body, api, state_.options.defaults, *model_.vocabulary);
        if (!settings)
            return std::unexpected(settings.error());
        if (ApiResult<void> applied = apply_schema(*settings, {}); !applied)
            return std::unexpected(applied.error());
        ApiResult<std::vector<std::vector<TokenId>>> prompts =
            read_prompts(body, *model_.vocabulary);
        if (!prompts)
            return std::unexpected(prompts.error());
        const auto make = api == Api::kLlama ? make_llama_writer : make_completion_writer;
        return generate(*prompts, *settings, false, make);
    }

    Reply chat(const Json& body) {
        ApiResult<ChatRequest> chat = read_chat(body);
        if (!chat)
            return std::unexpected(chat.error());
        return rendered(body, *chat, make_chat_writer);
    }

    Reply responses(Json body) {
        ApiResult<ChatRequest> chat = read_responses(body);
        if (!chat)
            return std::unexpected(chat.error());
        // The same settings by other names.
        JsonFields fields(body);
        const std::optional<int64_t> tokens = fields.integer("max_output_tokens", 1, 1 << 30);
        const Json* text = fields.object("text");
        if (fields.failed())
            return std::unexpected(fields.error());
        if (text != nullptr && text->contains("format"))
            body["response_format"] = Json((*text)["format"]);
        if (tokens)
            body["max_tokens"] = *tokens;
        body.erase("n");
        body.erase("logprobs");
        body.erase("top_logprobs");
        return rendered(body, *chat, make_responses_writer);
    }

private:
    using MakeChatWriter = std::unique_ptr<ReplyWriter> (*)(ReplyContext, ChatReplyOptions);

    Reply rendered(const Json& body, const ChatRequest& chat, MakeChatWriter make) {
        ApiResult<GenerationSettings> settings =
            read_settings(body, Api::kChat, state_.options.defaults, *model_.vocabulary);
        if (!settings)
            return std::unexpected(settings.error());
        ApiResult<RenderedChat> rendered = render_chat(chat, *model_.chat_template, *settings);
        if (!rendered)
            return std::unexpected(rendered.error());
        const std::vector<std::vector<TokenId>> prompts = {
            model_.vocabulary->encode(rendered->prompt, true, true)};
        const bool show_special = rendered->reply.format.shows_special();
        return generate(prompts, *settings, show_special, [&](ReplyContext context) {
            return make(std::move(context), std::move(rendered->reply));
        });
    }

    template <class MakeWriter>
    Reply generate(const std::vector<std::vector<TokenId>>& prompts,
                   const GenerationSettings& settings, bool show_special, MakeWriter make_writer) {
        ApiResult<std::unique_ptr<Generation>> generation =
            Generation::start(model_, state_.admission, prompts, settings, show_special);
        if (!generation)
            return std::unexpected(generation.error());
        ReplyContext context;
        context.tokenizer = model_.vocabulary;
        context.model = state_.model_name(model_);
        context.fingerprint = ServerState::fingerprint();
        context.created = static_cast<int64_t>(std::time(nullptr));
        context.settings = settings;
        context.submitted = (*generation)->submitted();
        for (size_t i = 0; i < (*generation)->size(); ++i) {
            context.tokens_prompt.push_back((*generation)->tokens_prompt(i));
            context.prompts.push_back(text_of(prompts[i / settings.choices], *model_.vocabulary));
        }
        std::unique_ptr<ReplyWriter> writer = make_writer(std::move(context));
        if (settings.stream)
            return streamed_reply(std::move(*generation), std::move(writer), state_.options.ping_s,
                                  request_.client_gone);
        return whole_reply(std::move(*generation), std::move(writer), request_.client_gone);
    }

    ServerState& state_;
    const ServedModel& model_;
    const HttpRequest& request_;
};

template <class Handle>
HttpHandler handler(ServerState& state, Handle handle) {
    return [&state, handle](const HttpRequest& request) {
        // Loaded: who asks earlier was answered before the handler.
        const ServedModel* model = state.model.load();
        if (model == nullptr)
            return error_reply(unavailable("Loading model"));
        ApiResult<Json> body = parse_json_object(request.body);
        if (!body)
            return error_reply(body.error());
        Handler one(state, *model, request);
        Reply reply = handle(one, std::move(*body));
        return reply ? std::move(*reply) : error_reply(reply.error());
    };
}

}  // namespace

std::vector<HttpRoute> generation_routes(ServerState& state) {
    std::vector<HttpRoute> routes;
    const auto add = [&](const char* path, auto handle) {
        routes.push_back({"POST", path, handler(state, handle)});
    };
    const auto llama = [](Handler& h, const Json& body) { return h.completion(body, Api::kLlama); };
    const auto completion = [](Handler& h, const Json& body) {
        return h.completion(body, Api::kCompletion);
    };
    const auto chat = [](Handler& h, const Json& body) { return h.chat(body); };
    const auto responses = [](Handler& h, Json body) { return h.responses(std::move(body)); };
    add("/completion", llama);
    add("/completions", llama);
    add("/v1/completions", completion);
    add("/chat/completions", chat);
    add("/v1/chat/completions", chat);
    add("/responses", responses);
    add("/v1/responses", responses);
    return routes;
}

}  // namespace bevy
