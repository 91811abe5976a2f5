#include "text/chat_format.h"

#include "text/chat_syntax.h"

namespace bevy {
namespace {

// Thoughts that have begun, up to their end.
constexpr const char* kThoughtsToEnd =
    R"GBNF(thoughts ( "<" [^/] thoughts )* "</think>" [\n]{0,2})GBNF";
constexpr const char* kAnalysisMaybe =
    R"GBNF(( "<|channel|>analysis<|message|>" thoughts "<|end|><|start|>assistant" )?)GBNF";

}  // namespace

ChatFormat detect_chat_format(std::string_view source) {
    ChatFormat format;
    format.thinks = source.contains("<think>") || source.contains("</think>");
    if (source.contains("<|channel|>") && source.contains("<|message|>"))
        format.syntax = ChatSyntax::kHarmony;
    else if (source.contains("<tool_call>") && source.contains("<function="))
        format.syntax = ChatSyntax::kTags;
    else if (source.contains("<tool_call>"))
        format.syntax = ChatSyntax::kHermes;
    return format;
}

GrammarFrame answer_frame(const ChatFormat& format, bool begins_thinking) {
    if (format.syntax == ChatSyntax::kHarmony)
        return {.before = std::string(kAnalysisMaybe) + " \"<|channel|>final<|message|>\""};
    // Thoughts that the prompt has not begun are left out, as llama-server does: a model that may
    // think before an answer of a given form could think until its tokens are used up.
    return {.before = begins_thinking ? kThoughtsToEnd : ""};
}

Result<std::string> forced_call_grammar(const ChatFormat& format, std::span<const ToolSchema> tools,
                                        bool begins_thinking, bool parallel) {
    GrammarFrame outer = answer_frame(format, begins_thinking);
    switch (format.syntax) {
        case ChatSyntax::kHermes:
            return tool_call_grammar(
                tools,
                {.before = R"GBNF("<tool_call>\n{\"name\": \"{name}\", \"arguments\": ")GBNF",
                 .after = R"GBNF("}\n</tool_call>")GBNF"},
                outer, parallel ? R"GBNF("\n")GBNF" : "");
        case ChatSyntax::kHarmony:
            outer.before = kAnalysisMaybe;
            return tool_call_grammar(
                tools,
                {.before = R"GBNF("<|channel|>commentary to=functions.{name} )GBNF"
                           R"GBNF(<|constrain|>json<|message|>")GBNF"},
                outer, "");
        case ChatSyntax::kTags:
            // Values have no quotes, so their schemas can't be forced; the call and its tool can.
            return forced_tag_grammar(tools, outer);
        case ChatSyntax::kPlain:
            break;
    }
    return std::string();
}

}  // namespace bevy
