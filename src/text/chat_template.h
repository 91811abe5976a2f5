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

#include "base/error.h"

namespace bevy {

struct ChatMessage {
    std::string role;  // "system", "user", "assistant"
    std::string content;
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

    // True: the model brings no template, and ChatML is used. Worth a notice to the user.
    bool is_fallback() const;

private:
    struct Impl;
    explicit ChatTemplate(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace bevy
