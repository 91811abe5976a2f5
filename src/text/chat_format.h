// How a model writes what is not plain answer: thoughts, and calls of tools.
//
// Models are trained on one way to write them, which their chat template shows. ChatOutputParser
// takes the text of an answer apart again, piece by piece as it is generated.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/json_schema_grammar.h"

namespace bevy {

enum class ChatSyntax : uint8_t {
    kPlain,    // nothing but text
    kHermes,   // <tool_call>{"name": ..., "arguments": {...}}</tool_call>
    kTags,     // <tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>
    kHarmony,  // messages on channels: analysis, commentary to=functions.NAME, final
};

struct ChatFormat {
    ChatSyntax syntax = ChatSyntax::kPlain;
    bool thinks = false;  // thoughts between <think> and </think>

    bool knows_tools() const { return syntax != ChatSyntax::kPlain; }
    // Its marks are special tokens: they must be part of the text that is taken apart.
    bool shows_special() const { return syntax == ChatSyntax::kHarmony; }
};

// What a template's source says about it.
ChatFormat detect_chat_format(std::string_view source);

struct ToolCall {
    std::string id;  // the caller's business; not part of what a model writes
    std::string name;
    std::string arguments;  // JSON text
};

// What has become certain.
struct ChatDelta {
    std::string reasoning;
    std::string content;
    std::vector<ToolCall> tool_calls;  // each complete

    bool empty() const { return reasoning.empty() && content.empty() && tool_calls.empty(); }
};

struct ChatOutputOptions {
    ChatFormat format;
    bool parse_tools = false;
    bool separate_reasoning = true;  // false: thoughts stay in the content
    bool begins_thinking = false;    // the prompt ends within <think>
    // To tell text from numbers where the syntax does not. Must outlive the parser.
    std::span<const ToolSchema> tools;
};

// The concatenated deltas do not depend on how the text is cut. Malformed calls stay content, so
// nothing that a model wrote is lost. One thread at a time.
class ChatOutputParser {
public:
    explicit ChatOutputParser(const ChatOutputOptions& options);
    ~ChatOutputParser();
    ChatOutputParser(ChatOutputParser&&) noexcept;
    ChatOutputParser& operator=(ChatOutputParser&&) noexcept;

    ChatDelta push(std::string_view text);
    // No more text comes.
    ChatDelta finish();

private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

// GBNF that makes a model of this format call a tool. Empty: the format has no tools.
// `parallel`: several calls may follow each other.
Result<std::string> forced_call_grammar(const ChatFormat& format, std::span<const ToolSchema> tools,
                                        bool begins_thinking, bool parallel);
// What stands before an answer that must follow a schema: thoughts, the channel's name.
GrammarFrame answer_frame(const ChatFormat& format, bool begins_thinking);

}  // namespace bevy
