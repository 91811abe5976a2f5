// Messages to prompt, by the model's own Jinja template.
//
// Templates come out of model files: whatever one does, the outcome is a prompt or an Error with
// the template's words. A model without a template gets ChatML. A template that ignores or refuses
// system messages gets the system text in front of the first user message instead.
//
// Immutable after create(); any thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "text/chat_format.h"

namespace bevy {

struct ChatMessage {
    std::string role;  // "system", "user", "assistant", "tool"
    std::string content;
    std::string reasoning;             // of an assistant
    std::vector<ToolCall> tool_calls;  // of an assistant
    std::string tool_call_id;          // of a tool: the call that it answers
    std::string name;                  // of a tool, or of a speaker; may be empty
};

// What a prompt is made of.
struct ChatPrompt {
    std::span<const ChatMessage> messages;
    bool add_generation_prompt = true;  // end where the assistant's answer begins
    std::string tools;                  // JSON array, as the client sent it; empty: none
    std::string variables;  // JSON object, known to the template by its keys; empty: none
};

struct ChatTemplateOptions {
    std::optional<std::string> source;  // Jinja; nothing: ChatML
    std::string bos_text;               // what the template knows as bos_token and eos_token
    std::string eos_text;
    bool tokenizer_adds_bos = false;  // then render() leaves out a leading BOS, lest there be two
    bool tokenizer_adds_eos = false;  // the same at the end
};

class ChatTemplate {
public:
    // kUnsupported: the template does not parse; the message says where.
    static Result<ChatTemplate> create(ChatTemplateOptions options);
    ~ChatTemplate();
    ChatTemplate(ChatTemplate&&) noexcept;
    ChatTemplate& operator=(ChatTemplate&&) noexcept;

    // The prompt for a conversation; with `add_generation_prompt` it ends where the assistant's
    // answer begins. Errors: kInvalidArgument, no messages, or the template refuses these (roles
    // that do not alternate, for example).
    Result<std::string> render(std::span<const ChatMessage> messages,
                               bool add_generation_prompt) const;

    // The same with all that a client may say. Besides the above: `tools` or `variables` are no
    // JSON of that kind.
    Result<std::string> render(const ChatPrompt& prompt) const;

    // How a model with this template writes thoughts and calls of tools.
    const ChatFormat& format() const;
    // The template itself.
    const std::string& source() const;

    // True: the model brings no template, and ChatML is used. Worth a notice to the user.
    bool is_fallback() const;

private:
    struct Impl;
    explicit ChatTemplate(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace bevy
