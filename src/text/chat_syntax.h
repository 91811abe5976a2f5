// The insides of chat_format.h: finding marks in text that grows, and reading one call of a tool.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "text/chat_format.h"

namespace bevy {

// Takes text up to the first of some marks, without ever giving out what may be a mark's beginning.
class MarkScanner {
public:
    void push(std::string_view text) { pending_ += text; }

    struct Found {
        std::string before;          // text before the mark, or all that can't be part of one
        std::optional<size_t> mark;  // which; nothing: none is complete yet
    };
    Found next(std::span<const std::string_view> marks);
    // All that is left.
    std::string rest();
    bool empty() const { return pending_.empty(); }

private:
    std::string pending_;
};

// {"name": ..., "arguments": ...}. Nothing: it is no call.
std::optional<ToolCall> read_hermes_call(std::string_view text);
// <function=NAME><parameter=KEY>value</parameter>...</function>.
std::optional<ToolCall> read_tag_call(std::string_view text, std::span<const ToolSchema> tools);
// Arguments as compact JSON; nothing: they are no JSON object.
std::optional<std::string> read_arguments(std::string_view text);

// A grammar for a call of one of the tools in the syntax of tags.
std::string forced_tag_grammar(std::span<const ToolSchema> tools, const GrammarFrame& outer);

}  // namespace bevy
