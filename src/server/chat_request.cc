#include "server/chat_request.h"

#include <algorithm>
#include <format>
#include <utility>

namespace bevy {
namespace {

// Text, or parts of text, which are joined. Images and sounds are refused by their type.
ApiResult<std::string> read_content(const Json& content) {
    if (content.is_string())
        return content.get<std::string>();
    if (!content.is_array())
        return std::unexpected(invalid_request(
            std::format("Field 'content': must be a string or an array of parts, but is {}",
                        json_kind(content))));
    std::string text;
    for (const Json& part : content) {
        if (!part.is_object())
            return std::unexpected(invalid_request("Field 'content': a part must be an object"));
        JsonFields fields(part);
        std::string type = "text";
        std::string piece;
        fields.text("type", type);
        if (type != "text" && type != "input_text" && type != "output_text")
            return std::unexpected(invalid_request("Field 'content': parts of the type '" + type +
                                                   "' are not supported, only text is"));
        fields.text("text", piece);
        if (fields.failed())
            return std::unexpected(fields.error());
        text += (text.empty() ? "" : "\n") + piece;
    }
    return text;
}

ApiResult<ToolCall> read_call(const Json& json) {
    const auto refuse = [](const std::string& problem) {
        return std::unexpected(invalid_request("Field 'tool_calls': " + problem));
    };
    if (!json.is_object())
        return refuse("a call must be an object");
    JsonFields fields(json);
    ToolCall call;
    fields.text("id", call.id);
    const Json* function = fields.object("function");
    if (fields.failed())
        return std::unexpected(fields.error());
    if (function == nullptr)
        return refuse("a call must have a 'function'");
    JsonFields inner(*function);
    inner.text("name", call.name);
    if (const Json* arguments = inner.find("arguments"))
        call.arguments =
            arguments->is_string() ? arguments->get<std::string>() : json_text(*arguments);
    if (inner.failed())
        return std::unexpected(inner.error());
    // Templates print the arguments as JSON.
    if (!call.arguments.empty()) {
        if (ApiResult<Json> parsed = parse_json(call.arguments); !parsed)
            return refuse("the arguments of '" + call.name + "' are not JSON");
    }
    return call;
}

ApiResult<ChatMessage> read_message(const Json& json) {
    if (!json.is_object())
        return std::unexpected(invalid_request("Field 'messages': a message must be an object"));
    JsonFields fields(json);
    ChatMessage message;
    fields.text("role", message.role);
    fields.text("reasoning_content", message.reasoning);
    fields.text("tool_call_id", message.tool_call_id);
    fields.text("name", message.name);
    const Json* calls = fields.array("tool_calls");
    if (fields.failed())
        return std::unexpected(fields.error());
    if (message.role.empty())
        return std::unexpected(invalid_request("Field 'messages': a message must have a 'role'"));
    if (const Json* content = fields.find("content")) {
        ApiResult<std::string> text = read_content(*content);
        if (!text)
            return std::unexpected(text.error());
        message.content = std::move(*text);
    } else if (message.role != "assistant") {
        return std::unexpected(
            invalid_request("All non-assistant messages must contain 'content'"));
    }
    for (size_t i = 0; calls != nullptr && i < calls->size(); ++i) {
        ApiResult<ToolCall> call = read_call((*calls)[i]);
        if (!call)
            return std::unexpected(call.error());
        message.tool_calls.push_back(std::move(*call));
    }
    return message;
}

// `nested`: the tool's fields lie in `function`, as in chats; else beside its type.
ApiResult<void> read_tools(const Json& tools, bool nested, ChatRequest& request) {
    const auto refuse = [](const std::string& problem) {
        return std::unexpected(invalid_request("Field 'tools': " + problem));
    };
    if (tools.size() > kToolsMax)
        return refuse(std::format("at most {} are possible", kToolsMax));
    Json shown = Json::array();
    for (const Json& tool : tools) {
        if (!tool.is_object())
            return refuse("a tool must be an object");
        JsonFields fields(tool);
        std::string type = "function";
        fields.text("type", type);
        if (type != "function")
            return refuse("only tools of the type 'function' are supported, not '" + type + "'");
        const Json* function = nested ? fields.object("function") : &tool;
        if (function == nullptr)
            return refuse("a tool must have a 'function'");
        JsonFields inner(*function);
        ToolSchema schema;
        inner.text("name", schema.name);
        const Json* parameters = inner.object("parameters");
        if (inner.failed())
            return std::unexpected(inner.error());
        if (schema.name.empty())
            return refuse("a function must have a 'name'");
        if (parameters != nullptr)
            schema.parameters = json_text(*parameters);
        request.tool_schemas.push_back(std::move(schema));
        Json inside = *function;
        inside.erase("type");
        shown.push_back(nested ? tool : Json({{"type", "function"}, {"function", inside}}));
    }
    if (!shown.empty())
        request.tools = json_text(shown);
    return {};
}

ApiResult<void> read_tool_choice(const Json& body, ChatRequest& request) {
    JsonFields fields(body);
    const Json* choice = fields.find("tool_choice");
    fields.boolean("parallel_tool_calls", request.parallel_tool_calls);
    if (fields.failed())
        return std::unexpected(fields.error());
    if (choice == nullptr)
        return {};
    if (choice->is_object()) {
        // {"type": "function", "function": {"name": ...}}, or the name beside the type.
        JsonFields named(*choice);
        const Json* function = named.object("function");
        JsonFields inner(function == nullptr ? *choice : *function);
        inner.text("name", request.tool_name);
        if (named.failed() || inner.failed() ||
            !std::ranges::contains(request.tool_schemas, request.tool_name, &ToolSchema::name))
            return std::unexpected(
                invalid_request("Field 'tool_choice': must name one of the 'tools'"));
        request.tool_choice = ToolChoice::kRequired;
        return {};
    }
    if (*choice == "none")
        request.tool_choice = ToolChoice::kNone;
    else if (*choice == "required")
        request.tool_choice = ToolChoice::kRequired;
    else if (*choice != "auto")
        return std::unexpected(invalid_request("Invalid tool_choice: " + json_text(*choice)));
    if (request.tool_choice == ToolChoice::kRequired && request.tool_schemas.empty())
        return std::unexpected(invalid_request("Field 'tool_choice': there are no 'tools'"));
    return {};
}

ApiResult<void> read_variables(const Json& body, ChatRequest& request) {
    JsonFields fields(body);
    const Json* given = fields.object("chat_template_kwargs");
    Json variables = given == nullptr ? Json::object() : *given;
    std::string effort;
    fields.text("reasoning_effort", effort);
    if (const Json* reasoning = fields.object("reasoning"))
        JsonFields(*reasoning).text("effort", effort);
    if (fields.failed())
        return std::unexpected(fields.error());
    if (!effort.empty() && !variables.contains("reasoning_effort"))
        variables["reasoning_effort"] = effort;
    if (!variables.empty())
        request.variables = json_text(variables);
    return {};
}

// What both APIs have beside the messages. `nested`: see read_tools().
ApiResult<void> read_rest(const Json& body, bool nested, ChatRequest& request) {
    JsonFields fields(body);
    const Json* tools = fields.array("tools");
    if (fields.failed())
        return std::unexpected(fields.error());
    if (tools != nullptr) {
        if (ApiResult<void> read = read_tools(*tools, nested, request); !read)
            return read;
    }
    if (ApiResult<void> read = read_tool_choice(body, request); !read)
        return read;
    return read_variables(body, request);
}

// One item of a Responses `input`: a message, a call that the model made, or what came of it.
ApiResult<void> read_item(const Json& json, ChatRequest& request) {
    if (!json.is_object())
        return std::unexpected(invalid_request("Field 'input': an item must be an object"));
    JsonFields fields(json);
    std::string type = "message";
    fields.text("type", type);
    if (fields.failed())
        return std::unexpected(fields.error());
    if (type == "message") {
        ApiResult<ChatMessage> message = read_message(json);
        if (!message)
            return std::unexpected(message.error());
        request.messages.push_back(std::move(*message));
    } else if (type == "function_call") {
        ToolCall call;
        fields.text("call_id", call.id);
        fields.text("name", call.name);
        fields.text("arguments", call.arguments);
        // Calls of one turn belong to one message.
        if (request.messages.empty() || request.messages.back().role != "assistant")
            request.messages.push_back({.role = "assistant"});
        request.messages.back().tool_calls.push_back(std::move(call));
    } else if (type == "function_call_output") {
        ChatMessage message{.role = "tool"};
        fields.text("call_id", message.tool_call_id);
        fields.text("output", message.content);
        request.messages.push_back(std::move(message));
    } else if (type != "reasoning") {
        return std::unexpected(
            invalid_request("Field 'input': items of the type '" + type + "' are not supported"));
    }
    if (fields.failed())
        return std::unexpected(fields.error());
    return {};
}

bool ends_within_thoughts(std::string_view prompt) {
    const size_t last = prompt.find_last_not_of(" \t\r\n");
    return last != std::string_view::npos && prompt.substr(0, last + 1).ends_with("<think>");
}

}  // namespace

ApiResult<ChatRequest> read_chat(const Json& body) {
    ChatRequest request;
    JsonFields fields(body);
    const Json* messages = fields.array("messages");
    if (fields.failed())
        return std::unexpected(fields.error());
    if (messages == nullptr)
        return std::unexpected(invalid_request("'messages' is required"));
    if (messages->empty() || messages->size() > kMessagesMax)
        return std::unexpected(invalid_request(
            std::format("Field 'messages': must hold between 1 and {}", kMessagesMax)));
    for (const Json& json : *messages) {
        ApiResult<ChatMessage> message = read_message(json);
        if (!message)
            return std::unexpected(message.error());
        request.messages.push_back(std::move(*message));
    }
    if (ApiResult<void> read = read_rest(body, true, request); !read)
        return std::unexpected(read.error());
    const ChatMessage& last = request.messages.back();
    if (last.role == "assistant" && last.tool_calls.empty()) {
        if (request.messages.size() == 1)
            return std::unexpected(
                invalid_request("Field 'messages': there must be more than an answer"));
        request.prefill = last.content;
        request.messages.pop_back();
    }
    return request;
}

ApiResult<ChatRequest> read_responses(const Json& body) {
    ChatRequest request;
    JsonFields fields(body);
    std::string instructions;
    std::string previous;
    fields.text("instructions", instructions);
    fields.text("previous_response_id", previous);
    if (!previous.empty())
        fields.refuse("previous_response_id", "replies are not stored; send the whole 'input'");
    if (fields.failed())
        return std::unexpected(fields.error());
    if (!instructions.empty())
        request.messages.push_back({"system", instructions});
    const Json* input = fields.find("input");
    if (input == nullptr)
        return std::unexpected(invalid_request("'input' is required"));
    if (input->is_string()) {
        request.messages.push_back({"user", input->get<std::string>()});
    } else if (input->is_array() && input->size() <= kMessagesMax) {
        for (const Json& item : *input) {
            if (ApiResult<void> read = read_item(item, request); !read)
                return std::unexpected(read.error());
        }
    } else {
        return std::unexpected(invalid_request(std::format(
            "Field 'input': must be a string or an array of at most {}", kMessagesMax)));
    }
    if (request.messages.empty())
        return std::unexpected(invalid_request("Field 'input': must not be empty"));
    if (ApiResult<void> read = read_rest(body, false, request); !read)
        return std::unexpected(read.error());
    return request;
}

ApiResult<void> apply_schema(GenerationSettings& settings, const GrammarFrame& frame) {
    if (settings.json_schema.empty())
        return {};
    Result<std::string> grammar = json_schema_grammar(settings.json_schema, frame);
    if (!grammar)
        return std::unexpected(api_error(grammar.error()));
    settings.sampling.grammar = std::move(*grammar);
    return {};
}

ApiResult<RenderedChat> render_chat(const ChatRequest& request, const ChatTemplate& chat_template,
                                    GenerationSettings& settings) {
    RenderedChat rendered;
    const bool with_tools = request.tool_choice != ToolChoice::kNone;
    Result<std::string> prompt =
        chat_template.render(ChatPrompt{.messages = request.messages,
                                        .add_generation_prompt = true,
                                        .tools = with_tools ? request.tools : std::string(),
                                        .variables = request.variables});
    if (!prompt)
        return std::unexpected(api_error(prompt.error()));
    rendered.prompt = std::move(*prompt);
    ChatReplyOptions& reply = rendered.reply;
    reply.format = chat_template.format();
    reply.parse_tools = with_tools && !request.tool_schemas.empty();
    reply.begins_thinking = reply.format.thinks && ends_within_thoughts(rendered.prompt);
    reply.tools = request.tool_schemas;
    reply.prefill = request.prefill;
    rendered.prompt += request.prefill;
    const bool begun = !request.prefill.empty();
    if (ApiResult<void> applied = apply_schema(
            settings, begun ? GrammarFrame{} : answer_frame(reply.format, reply.begins_thinking));
        !applied)
        return std::unexpected(applied.error());
    if (request.tool_choice != ToolChoice::kRequired)
        return rendered;
    if (!reply.format.knows_tools())
        return std::unexpected(invalid_request(
            "Field 'tool_choice': the model's chat template has no way to call tools"));
    if (!settings.sampling.grammar.empty())
        return std::unexpected(invalid_request(
            "Field 'tool_choice': a required call can't be combined with a grammar or a schema"));
    std::vector<ToolSchema> callable;
    std::ranges::copy_if(reply.tools, std::back_inserter(callable), [&](const ToolSchema& tool) {
        return request.tool_name.empty() || tool.name == request.tool_name;
    });
    Result<std::string> grammar = forced_call_grammar(reply.format, callable, reply.begins_thinking,
                                                      request.parallel_tool_calls);
    if (!grammar)
        return std::unexpected(api_error(grammar.error()));
    settings.sampling.grammar = std::move(*grammar);
    return rendered;
}

}  // namespace bevy
