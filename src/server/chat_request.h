// The messages and tools of a chat, from JSON to native values, and from there to a prompt.
#pragma once

#include <string>
#include <vector>

#include "server/chat_writer.h"
#include "server/generation_settings.h"
#include "server/json_body.h"
#include "text/chat_template.h"

namespace bevy {

constexpr size_t kMessagesMax = 4096;
constexpr size_t kToolsMax = 256;

enum class ToolChoice : uint8_t { kAuto, kNone, kRequired };

struct ChatRequest {
    std::vector<ChatMessage> messages;
    std::string tools;  // JSON array for the template; empty: none
    std::vector<ToolSchema> tool_schemas;
    ToolChoice tool_choice = ToolChoice::kAuto;
    std::string tool_name;  // the one that must be called; empty: any
    bool parallel_tool_calls = false;
    std::string variables;  // JSON object for the template
    // The last message is the beginning of the answer, which the model goes on with.
    std::string prefill;
};

// Errors: 400 naming the field.
ApiResult<ChatRequest> read_chat(const Json& body);
// The messages of OpenAI's Responses API: `input`, `instructions` and `tools`.
ApiResult<ChatRequest> read_responses(const Json& body);

struct RenderedChat {
    std::string prompt;
    ChatReplyOptions reply;
};

// The prompt, and how its answer is to be read. Puts what tools and schemas demand into
// `settings.sampling.grammar`. Errors: 400 with the template's words.
ApiResult<RenderedChat> render_chat(const ChatRequest& request, const ChatTemplate& chat_template,
                                    GenerationSettings& settings);

// The grammar of `settings.json_schema`, if there is one, with the frame around it.
ApiResult<void> apply_schema(GenerationSettings& settings, const GrammarFrame& frame);

}  // namespace bevy
