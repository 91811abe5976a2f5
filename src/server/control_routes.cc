#include "server/control_routes.h"

#include <algorithm>
#include <utility>

#include "server/chat_request.h"
#include "server/metrics.h"
#include "server/prompt_tokens.h"
#include "server/settings_fields.h"

namespace bevy {
namespace {

HttpReply json_reply(const Json& json, int status = 200) {
    HttpReply reply;
    reply.status = status;
    reply.body = json_text(json);
    return reply;
}

HttpReply health(const ServerState& state) {
    if (state.admission.closed())
        return error_reply(unavailable("The server is shutting down"));
    if (state.model.load() != nullptr)
        return json_reply({{"status", "ok"}});
    Json error = {{"message", "Loading model"}, {"type", "unavailable_error"}, {"code", 503}};
    const uint64_t total = state.loading_bytes;
    const double part =
        total == 0 ? 0 : static_cast<double>(state.loaded_bytes) / static_cast<double>(total);
    return json_reply({{"error", std::move(error)}, {"progress", part}}, 503);
}

Json model_facts(const ServedModel& model) {
    const ModelFacts& facts = model.facts;
    return {{"vocab_type", model.vocabulary->kind()},
            {"n_vocab", model.vocabulary->vocabulary_size()},
            {"n_ctx", model.context},
            {"n_ctx_train", facts.context_train},
            {"n_embd", facts.embedding},
            {"n_params", facts.parameters},
            {"size", facts.bytes},
            {"ftype", facts.type},
            {"n_experts", facts.experts},
            {"n_expert_slots", facts.expert_slots}};
}

HttpReply models(const ServerState& state, const ServedModel& model) {
    const std::string name = state.model_name(model);
    Json aliases = state.options.aliases;
    if (aliases.empty())
        aliases.push_back(name);
    const Json ollama = {{"name", name},
                         {"model", name},
                         {"modified_at", ""},
                         {"size", ""},
                         {"digest", ""},
                         {"type", "model"},
                         {"description", ""},
                         {"tags", Json::array({""})},
                         {"capabilities", Json::array({"completion"})},
                         {"parameters", ""},
                         {"details",
                          {{"parent_model", ""},
                           {"format", "gguf"},
                           {"family", ""},
                           {"families", Json::array({""})},
                           {"parameter_size", ""},
                           {"quantization_level", ""}}}};
    const Json text = Json::array({"text"});
    const Json openai = {
        {"id", name},
        {"aliases", std::move(aliases)},
        {"tags", Json::array()},
        {"object", "model"},
        {"architecture", {{"input_modalities", text}, {"output_modalities", text}}},
        {"created", state.started},
        {"owned_by", "bevy"},
        {"meta", model_facts(model)}};
    return json_reply(
        {{"models", Json::array({ollama})}, {"object", "list"}, {"data", Json::array({openai})}});
}

Json template_facts(const ChatTemplate& chat_template) {
    const ChatFormat& format = chat_template.format();
    return {{"supports_object_arguments", format.knows_tools()},
            {"supports_parallel_tool_calls", format.knows_tools()},
            {"supports_preserve_reasoning", false},
            {"supports_reasoning_effort", format.syntax == ChatSyntax::kHarmony},
            {"supports_string_content", true},
            {"supports_system_role", true},
            {"supports_tool_calls", format.knows_tools()},
            {"supports_tools", format.knows_tools()},
            {"supports_typed_content", false}};
}

HttpReply props(const ServerState& state, const ServedModel& model) {
    return json_reply(
        {{"default_generation_settings",
          {{"params", short_settings_json(state.options.defaults)}, {"n_ctx", model.context}}},
         {"total_slots", model.parallel},
         {"model_alias", state.model_name(model)},
         {"model_ftype", model.facts.type},
         {"model_path", model.facts.path},
         {"modalities", {{"vision", false}, {"video", false}, {"audio", false}}},
         {"endpoint_slots", state.options.slots},
         {"endpoint_props", false},
         {"endpoint_metrics", state.options.metrics},
         {"ui", state.options.web_ui},
         {"ui_settings", Json::object()},
         {"chat_template", model.chat_template->source()},
         {"chat_template_caps", template_facts(*model.chat_template)},
         {"bos_token", model.vocabulary->bos_text()},
         {"eos_token", model.vocabulary->eos_text()},
         {"build_info", ServerState::fingerprint()},
         {"is_sleeping", false}});
}

Json slot_json(const ServerState& state, const ServedModel& model, uint32_t id,
               const RequestProgress* request) {
    Json slot = {{"id", id},
                 {"n_ctx", model.context},
                 {"speculative", false},
                 {"is_processing", request != nullptr}};
    if (request == nullptr)
        return slot;
    slot["id_task"] = request->request.value;
    slot["n_prompt_tokens"] = request->tokens_prompt;
    slot["n_prompt_tokens_processed"] =
        std::min(request->position, request->tokens_prompt) - request->tokens_reused;
    slot["n_prompt_tokens_cache"] = request->tokens_reused;
    slot["state"] = request_phase_name(request->phase);
    slot["layer"] = request->stage;
    slot["missing_experts"] = request->missing_experts;
    slot["params"] = short_settings_json(state.options.defaults);
    slot["next_token"] = Json::array({{{"has_next_token", true},
                                       {"has_new_line", false},
                                       {"n_remain", -1},
                                       {"n_decoded", request->tokens_generated}}});
    return slot;
}

HttpReply slots(const ServerState& state, const ServedModel& model, const HttpRequest& request) {
    if (!state.options.slots)
        return error_reply(
            not_supported("This server does not show slots. Start it without `--no-slots`"));
    const EngineSnapshot snapshot = model.engine->snapshot();
    Json list = Json::array();
    uint32_t idle = 0;
    for (uint32_t id = 0; id < model.parallel; ++id) {
        const auto found = std::ranges::find_if(snapshot.requests, [&](const RequestProgress& r) {
            return r.seq && r.seq->value == id;
        });
        const bool busy = found != snapshot.requests.end();
        idle += !busy;
        list.push_back(slot_json(state, model, id, busy ? &*found : nullptr));
    }
    if (request.query.contains("fail_on_no_slot") && idle == 0)
        return error_reply(unavailable("no slot available"));
    return json_reply(list);
}

Json request_json(const RequestProgress& request) {
    return {{"id", request.request.value},
            {"slot", request.seq ? Json(request.seq->value) : Json()},
            {"state", request_phase_name(request.phase)},
            {"layer", request.stage},
            {"missing_experts", request.missing_experts},
            {"prompt_tokens", request.tokens_prompt},
            {"prompt_tokens_processed", std::min(request.position, request.tokens_prompt)},
            {"generated_tokens", request.tokens_generated}};
}

// What the live view of the web page shows: the state now, and counters since the start, whose
// differences are rates.
HttpReply engine(const ServerState& state, const ServedModel& model) {
    if (!state.options.slots)
        return error_reply(
            not_supported("This server does not show its engine. Start it without `--no-slots`"));
    const EngineSnapshot snapshot = model.engine->snapshot();
    const EngineStats& stats = snapshot.stats;
    Json requests = Json::array();
    for (const RequestProgress& request : snapshot.requests)
        requests.push_back(request_json(request));
    return json_reply(
        {{"requests", std::move(requests)},
         {"slots", model.parallel},
         {"experts",
          {{"layers", snapshot.resident.size()},
           {"per_layer", snapshot.experts_per_layer},
           {"in_memory", snapshot.resident},
           {"room_for", model.facts.expert_slots}}},
         {"seconds",
          {{"wall", stats.wall.seconds()},
           {"active", stats.active.seconds()},
           {"computing", stats.core.compute_busy.seconds()},
           {"reading", stats.core.link_busy.seconds()},
           {"stalled", stats.core.stall.seconds()}}},
         {"tokens", {{"prompt", stats.tokens_prompt}, {"generated", stats.tokens_generated}}},
         {"bytes_read", stats.link_bytes},
         {"expert_hits", stats.core.expert_hits},
         {"expert_misses", stats.core.expert_misses}});
}

HttpReply metrics(const ServerState& state, const ServedModel& model) {
    if (!state.options.metrics)
        return error_reply(
            not_supported("This server does not show metrics. Start it with `--metrics`"));
    MetricsInput input;
    input.snapshot = model.engine->snapshot();
    input.totals = state.admission.totals();
    input.inside = state.admission.inside();
    input.replies = state.admission.replies();
    input.parallel = model.parallel;
    input.expert_slots = model.facts.expert_slots;
    HttpReply reply;
    reply.content_type = "text/plain; version=0.0.4";
    reply.body = metrics_text(input);
    return reply;
}

ApiResult<Json> tokenize(const Json& body, const LlamaVocabulary& vocabulary) {
    JsonFields fields(body);
    bool add_special = false;
    bool parse_special = true;
    bool with_pieces = false;
    fields.boolean("add_special", add_special);
    fields.boolean("parse_special", parse_special);
    fields.boolean("with_pieces", with_pieces);
    if (fields.failed())
        return std::unexpected(fields.error());
    std::vector<TokenId> tokens;
    if (const Json* content = fields.find("content")) {
        ApiResult<std::vector<TokenId>> read =
            read_tokens(*content, vocabulary, add_special, parse_special);
        if (!read)
            return std::unexpected(read.error());
        tokens = std::move(*read);
    }
    if (!with_pieces)
        return Json({{"tokens", tokens}});
    Json list = Json::array();
    for (const TokenId token : tokens) {
        const std::string piece = vocabulary.piece(token, true);
        Json shown = piece;
        // A part of a character is no text.
        if (text_of({token}, vocabulary) != piece) {
            shown = Json::array();
            for (const char byte : piece)
                shown.push_back(static_cast<unsigned char>(byte));
        }
        list.push_back({{"id", token}, {"piece", std::move(shown)}});
    }
    return Json({{"tokens", std::move(list)}});
}

ApiResult<Json> detokenize(const Json& body, const LlamaVocabulary& vocabulary) {
    JsonFields fields(body);
    std::vector<TokenId> tokens;
    if (const Json* listed = fields.array("tokens")) {
        ApiResult<std::vector<TokenId>> read = read_tokens(*listed, vocabulary, false, false);
        if (!read)
            return std::unexpected(read.error());
        tokens = std::move(*read);
    }
    if (fields.failed())
        return std::unexpected(fields.error());
    return Json({{"content", text_of(tokens, vocabulary)}});
}

ApiResult<Json> apply_template(const Json& body, const ServerState& state,
                               const ServedModel& model) {
    ApiResult<ChatRequest> chat = read_chat(body);
    if (!chat)
        return std::unexpected(chat.error());
    GenerationSettings settings = state.options.defaults;
    ApiResult<RenderedChat> rendered = render_chat(*chat, *model.chat_template, settings);
    if (!rendered)
        return std::unexpected(rendered.error());
    return Json({{"prompt", rendered->prompt}});
}

// A handler that needs the model.
template <class Handle>
HttpHandler with_model(ServerState& state, Handle handle) {
    return [&state, handle](const HttpRequest& request) {
        const ServedModel* model = state.model.load();
        return model == nullptr ? error_reply(unavailable("Loading model"))
                                : handle(*model, request);
    };
}

// One that takes JSON and gives JSON.
template <class Handle>
HttpHandler with_body(ServerState& state, Handle handle) {
    return with_model(state, [handle](const ServedModel& model, const HttpRequest& request) {
        const ApiResult<Json> body = parse_json_object(request.body);
        const ApiResult<Json> reply =
            body ? handle(model, *body) : ApiResult<Json>(std::unexpected(body.error()));
        return reply ? json_reply(*reply) : error_reply(reply.error());
    });
}

HttpHandler refusal(const std::string& message) {
    return [message](const HttpRequest&) { return error_reply(not_supported(message)); };
}

}  // namespace

std::vector<HttpRoute> control_routes(ServerState& state) {
    std::vector<HttpRoute> routes;
    const auto add = [&](const char* method, std::initializer_list<const char*> paths,
                         const HttpHandler& handler) {
        for (const char* path : paths)
            routes.push_back({method, path, handler});
    };
    add("GET", {"/health", "/v1/health"}, [&state](const HttpRequest&) { return health(state); });
    add("GET", {"/models", "/v1/models"},
        with_model(state, [&state](const ServedModel& model, const HttpRequest&) {
            return models(state, model);
        }));
    add("GET", {"/props"},
        with_model(state, [&state](const ServedModel& model, const HttpRequest&) {
            return props(state, model);
        }));
    add("GET", {"/slots"},
        with_model(state, [&state](const ServedModel& model, const HttpRequest& request) {
            return slots(state, model, request);
        }));
    add("GET", {"/engine"},
        with_model(state, [&state](const ServedModel& model, const HttpRequest&) {
            return engine(state, model);
        }));
    add("GET", {"/metrics"},
        with_model(state, [&state](const ServedModel& model, const HttpRequest&) {
            return metrics(state, model);
        }));
    add("POST", {"/tokenize"}, with_body(state, [](const ServedModel& model, const Json& body) {
            return tokenize(body, *model.vocabulary);
        }));
    add("POST", {"/detokenize"}, with_body(state, [](const ServedModel& model, const Json& body) {
            return detokenize(body, *model.vocabulary);
        }));
    add("POST", {"/apply-template"},
        with_body(state, [&state](const ServedModel& model, const Json& body) {
            return apply_template(body, state, model);
        }));
    add("POST", {"/props"}, refusal("Settings can't be changed while the server runs"));
    add("POST", {"/embedding", "/embeddings", "/v1/embeddings"},
        refusal("This server does not support embeddings"));
    add("POST", {"/rerank", "/reranking", "/v1/rerank", "/v1/reranking"},
        refusal("This server does not support reranking"));
    add("POST", {"/infill"}, refusal("This server does not support infill"));
    return routes;
}

}  // namespace bevy
