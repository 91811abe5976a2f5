#include "text/chat_template.h"

// minja is not written for our warning level.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wall"
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wpedantic"
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"
#pragma GCC diagnostic ignored "-Woverloaded-virtual"
#include <minja/minja.hpp>
#pragma GCC diagnostic pop

#include <ctime>
#include <exception>
#include <utility>
#include <vector>

namespace bevy {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kChatMl =
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";
constexpr size_t kSourceBytesMax = 1 << 20;
constexpr size_t kCauseBytesMax = 300;

// minja appends the template's text around the place; the first lines are enough.
std::string cause_of(const std::exception& e) {
    std::string cause = e.what();
    if (const size_t end = cause.find('\n'); end != std::string::npos)
        cause.resize(end);
    if (cause.size() > kCauseBytesMax)
        cause = cause.substr(0, kCauseBytesMax) + "...";
    return cause;
}

std::string format_time_now(const std::string& format) {
    const std::time_t now = std::time(nullptr);
    std::tm local = {};
    localtime_r(&now, &local);
    char text[256];
    return {text, std::strftime(text, sizeof text, format.c_str(), &local)};
}

// Arguments as the object that they are, where they are one: templates print them as JSON.
Json to_json(const ToolCall& call) {
    Json arguments = Json::parse(call.arguments, nullptr, false);
    if (arguments.is_discarded())
        arguments = call.arguments;
    return {{"id", call.id},
            {"type", "function"},
            {"function", {{"name", call.name}, {"arguments", std::move(arguments)}}}};
}

Json to_json(const ChatMessage& message, bool content_parts) {
    Json json = {
        {"role", message.role},
        {"content", content_parts ? Json::array({{{"type", "text"}, {"text", message.content}}})
                                  : Json(message.content)}};
    if (!message.reasoning.empty()) {
        // gpt-oss's template has a name of its own.
        json["reasoning_content"] = message.reasoning;
        json["thinking"] = message.reasoning;
    }
    if (!message.tool_calls.empty()) {
        json["tool_calls"] = Json::array();
        for (const ToolCall& call : message.tool_calls)
            json["tool_calls"].push_back(to_json(call));
    }
    if (!message.tool_call_id.empty())
        json["tool_call_id"] = message.tool_call_id;
    if (!message.name.empty())
        json["name"] = message.name;
    return json;
}

// The system messages' text in front of the first user message; without one, as a user message.
std::vector<ChatMessage> merge_system(std::span<const ChatMessage> messages) {
    std::vector<ChatMessage> merged;
    std::string system;
    for (const ChatMessage& message : messages) {
        if (message.role == "system") {
            system += (system.empty() ? "" : "\n") + message.content;
            continue;
        }
        merged.push_back(message);
        if (!system.empty() && message.role == "user") {
            merged.back().content = system + "\n" + message.content;
            system.clear();
        }
    }
    if (!system.empty())
        merged.insert(merged.begin(), ChatMessage{"user", system});
    return merged;
}

}  // namespace

struct ChatTemplate::Impl {
    ChatTemplateOptions options;
    std::string source;
    ChatFormat format;
    std::shared_ptr<minja::TemplateNode> root;
    bool knows_system = true;
    bool wants_content_parts = false;  // content as [{"type": "text", "text": ...}]

    // Throws what minja throws, and what the JSON library does for malformed JSON.
    std::string run(const ChatPrompt& prompt, bool content_parts) const {
        Json variables = prompt.variables.empty() ? Json::object() : Json::parse(prompt.variables);
        Json list = Json::array();
        for (const ChatMessage& message : prompt.messages)
            list.push_back(to_json(message, content_parts));
        variables["messages"] = std::move(list);
        variables["add_generation_prompt"] = prompt.add_generation_prompt;
        if (!prompt.tools.empty())
            variables["tools"] = Json::parse(prompt.tools);
        const auto context = minja::Context::make(variables);
        context->set("bos_token", options.bos_text);
        context->set("eos_token", options.eos_text);
        context->set("strftime_now",
                     minja::Value::callable([](const std::shared_ptr<minja::Context>&,
                                               minja::ArgumentsValue& arguments) {
                         arguments.expectArgs("strftime_now", {1, 1}, {0, 0});
                         return minja::Value(format_time_now(arguments.args[0].get<std::string>()));
                     }));
        return root->render(context);
    }

    bool shows(std::span<const ChatMessage> messages, bool content_parts,
               const std::string& needle) const {
        try {
            return run({.messages = messages, .add_generation_prompt = false}, content_parts)
                .contains(needle);
        } catch (const std::exception&) {
            return false;
        }
    }

    // Templates do not say what they can do, so try.
    void probe() {
        const ChatMessage user{"user", "<User Needle>"};
        const ChatMessage system{"system", "<System Needle>"};
        const std::vector<ChatMessage> alone = {user};
        const std::vector<ChatMessage> with_system = {system, user};
        wants_content_parts =
            !shows(alone, false, user.content) && shows(alone, true, user.content);
        knows_system = shows(with_system, wants_content_parts, system.content);
    }
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;

Result<ChatTemplate> ChatTemplate::create(ChatTemplateOptions options) {
    const std::string source = options.source.value_or(std::string(kChatMl));
    if (source.size() > kSourceBytesMax)
        return fail(ErrorCode::kUnsupported, "the model's chat template is longer than 1 MiB",
                    "use plain prompts instead of chat");
    auto impl = std::make_unique<Impl>();
    impl->options = std::move(options);
    impl->source = source;
    impl->format = detect_chat_format(source);
    try {
        impl->root = minja::Parser::parse(
            source, {.trim_blocks = true, .lstrip_blocks = true, .keep_trailing_newline = false});
        impl->probe();
    } catch (const std::exception& e) {
        return fail(ErrorCode::kUnsupported, "can't read the model's chat template: " + cause_of(e),
                    "use plain prompts instead of chat");
    }
    return ChatTemplate(std::move(impl));
}

Result<std::string> ChatTemplate::render(std::span<const ChatMessage> messages,
                                         bool add_generation_prompt) const {
    return render({.messages = messages, .add_generation_prompt = add_generation_prompt});
}

Result<std::string> ChatTemplate::render(const ChatPrompt& wanted) const {
    if (wanted.messages.empty())
        return fail(ErrorCode::kInvalidArgument, "a conversation needs at least one message");
    std::string prompt;
    try {
        ChatPrompt given = wanted;
        const std::vector<ChatMessage> merged = merge_system(wanted.messages);
        if (!impl_->knows_system)
            given.messages = merged;
        prompt = impl_->run(given, impl_->wants_content_parts);
    } catch (const std::exception& e) {
        return fail(ErrorCode::kInvalidArgument,
                    "the model's chat template refuses these messages: " + cause_of(e),
                    "check the roles and their order");
    }
    const ChatTemplateOptions& options = impl_->options;
    if (options.tokenizer_adds_bos && !options.bos_text.empty() &&
        prompt.starts_with(options.bos_text))
        prompt.erase(0, options.bos_text.size());
    if (options.tokenizer_adds_eos && !options.eos_text.empty() &&
        prompt.ends_with(options.eos_text))
        prompt.resize(prompt.size() - options.eos_text.size());
    return prompt;
}

const ChatFormat& ChatTemplate::format() const {
    return impl_->format;
}

const std::string& ChatTemplate::source() const {
    return impl_->source;
}

bool ChatTemplate::is_fallback() const {
    return !impl_->options.source.has_value();
}

}  // namespace bevy
