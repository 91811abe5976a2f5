#include "text/chat_format.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/prng.h"

namespace bevy {
namespace {

const ChatFormat kThinkingHermes = {.syntax = ChatSyntax::kHermes, .thinks = true};
const ChatFormat kHarmonyFormat = {.syntax = ChatSyntax::kHarmony};

std::string shown(const ChatDelta& delta) {
    std::string text = "[" + delta.reasoning + "|" + delta.content + "]";
    for (const ToolCall& call : delta.tool_calls)
        text += " " + call.name + call.arguments;
    return text;
}

// All of it in pieces as they come: at once, byte by byte, and cut at random.
std::string parsed(const ChatOutputOptions& options, const std::string& text) {
    std::string first;
    for (uint64_t seed = 0; seed < 12; ++seed) {
        Prng prng(seed);
        ChatOutputParser parser(options);
        ChatDelta all;
        const auto add = [&](ChatDelta delta) {
            all.reasoning += delta.reasoning;
            all.content += delta.content;
            for (ToolCall& call : delta.tool_calls)
                all.tool_calls.push_back(std::move(call));
        };
        for (size_t at = 0; at < text.size();) {
            const size_t length = seed == 0 ? text.size() : seed == 1 ? 1 : 1 + prng.below(9);
            add(parser.push(text.substr(at, length)));
            at += length;
        }
        add(parser.finish());
        if (seed == 0)
            first = shown(all);
        else
            EXPECT_EQ(shown(all), first) << "cut with seed " << seed;
    }
    return first;
}

TEST(ChatFormat, IsSeenInTheTemplate) {
    EXPECT_EQ(detect_chat_format("{{ messages }}").syntax, ChatSyntax::kPlain);
    EXPECT_EQ(detect_chat_format("x <tool_call> y").syntax, ChatSyntax::kHermes);
    EXPECT_EQ(detect_chat_format("<tool_call>\n<function=f>").syntax, ChatSyntax::kTags);
    EXPECT_EQ(detect_chat_format("<|channel|>final<|message|>").syntax, ChatSyntax::kHarmony);
    EXPECT_TRUE(detect_chat_format("</think>").thinks);
    EXPECT_FALSE(detect_chat_format("<tool_call>").thinks);
}

TEST(ChatOutputParser, PlainTextStaysAsItIs) {
    EXPECT_EQ(parsed({}, " a <tool_call>{}</tool_call> <think>b</think>\n "),
              "[| a <tool_call>{}</tool_call> <think>b</think>\n ]");
}

TEST(ChatOutputParser, TakesThoughtsApart) {
    const ChatOutputOptions options = {.format = kThinkingHermes};
    EXPECT_EQ(parsed(options, "<think>\nhm, hm\n</think>\n\nYes. \n"), "[hm, hm|Yes. \n]");
    EXPECT_EQ(parsed(options, "\n<think>a</think>b"), "[a|b]");
    EXPECT_EQ(parsed(options, "no thoughts <think>at all</think>"),
              "[|no thoughts <think>at all</think>]");
    EXPECT_EQ(parsed(options, "<think>never ends"), "[never ends|]");
    EXPECT_EQ(parsed(options, "<thin"), "[|<thin]");
    EXPECT_EQ(parsed(options, "  "), "[|  ]");
}

TEST(ChatOutputParser, ThePromptMayHaveBegunTheThoughts) {
    const ChatOutputOptions options = {.format = kThinkingHermes, .begins_thinking = true};
    EXPECT_EQ(parsed(options, "hm\n</think>\n\nYes"), "[hm|Yes]");
}

TEST(ChatOutputParser, ThoughtsMayStayInTheText) {
    const ChatOutputOptions options = {.format = kThinkingHermes, .separate_reasoning = false};
    EXPECT_EQ(parsed(options, "<think>a</think>b"), "[|<think>a</think>b]");
}

TEST(ChatOutputParser, ReadsHermesCalls) {
    const ChatOutputOptions options = {.format = kThinkingHermes, .parse_tools = true};
    EXPECT_EQ(parsed(options,
                     "Let me see.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n"
                     "</tool_call>\n<tool_call>{\"name\":\"g\"}</tool_call>\n"),
              R"([|Let me see.] f{"x":1} g{})");
    EXPECT_EQ(parsed(options, "<think>so</think>\n<tool_call>{\"name\":\"f\",\"arguments\":{}}"),
              "[so|] f{}");
}

TEST(ChatOutputParser, MalformedCallsAreText) {
    const ChatOutputOptions options = {.format = kThinkingHermes, .parse_tools = true};
    for (const std::string inner :
         {"not json", "{\"arguments\":{}}", "[1]", "{\"name\":5}", "{\"name\":\"\"}"}) {
        const std::string text = "a <tool_call>" + inner + "</tool_call>";
        EXPECT_EQ(parsed(options, text), "[|" + text + "]");
    }
    EXPECT_EQ(parsed(options, "a <tool_call>{\"na"), "[|a <tool_call>{\"na]");
    // The JSON library would overflow the stack with it.
    const std::string deep = "<tool_call>{\"name\":\"f\",\"arguments\":" + std::string(100000, '[');
    ChatOutputParser parser(options);
    EXPECT_TRUE(parser.push(deep).tool_calls.empty());
    EXPECT_EQ(parser.finish().content, deep);
}

TEST(ChatOutputParser, ReadsCallsInTags) {
    const std::vector<ToolSchema> tools = {
        {"f",
         R"({"type":"object","properties":{"text":{"type":"string"},"n":{"type":"integer"}}})"}};
    const ChatOutputOptions options = {
        .format = {.syntax = ChatSyntax::kTags}, .parse_tools = true, .tools = tools};
    EXPECT_EQ(parsed(options,
                     "ok\n<tool_call>\n<function=f>\n<parameter=text>\n12\n</parameter>\n"
                     "<parameter=n>\n12\n</parameter>\n<parameter=free>\n{\"a\": 1}\n</parameter>\n"
                     "</function>\n</tool_call>"),
              R"([|ok] f{"text":"12","n":12,"free":{"a":1}})");
    EXPECT_EQ(parsed(options, "<tool_call><function=f>\n<parameter=text>x"),
              "[|<tool_call><function=f>\n<parameter=text>x]");
}

TEST(ChatOutputParser, ReadsHarmonyChannels) {
    const ChatOutputOptions options = {.format = kHarmonyFormat, .parse_tools = true};
    EXPECT_EQ(parsed(options,
                     "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>"
                     "final<|message|>Yes.<|return|>"),
              "[hm|Yes.]");
    EXPECT_EQ(
        parsed(options,
               "<|channel|>analysis<|message|>so<|end|><|start|>assistant<|channel|>commentary "
               "to=functions.get <|constrain|>json<|message|>{\"a\": 1}<|call|>"),
        R"([so|] get{"a":1})");
    EXPECT_EQ(parsed(options,
                     "<|start|>assistant to=functions.get<|channel|>commentary json"
                     "<|message|>{}<|call|>"),
              "[|] get{}");
    EXPECT_EQ(parsed(options, "<|channel|>commentary<|message|>First this.<|end|>"),
              "[|First this.]");
    EXPECT_EQ(parsed(options, "<|channel|>final<|message|>cut off"), "[|cut off]");
    EXPECT_EQ(parsed(options, "no channels at all"), "[|no channels at all]");
    EXPECT_EQ(parsed(options, "<|channel|>commentary to=functions.f<|message|>not json<|call|>"),
              "[|not json]");
}

TEST(ChatOutputParser, AnyBytesEndSomewhere) {
    const std::vector<std::string> words = {"<think>",
                                            "</think>",
                                            "<tool_call>",
                                            "</tool_call>",
                                            "<|channel|>",
                                            "<|message|>",
                                            "<|end|>",
                                            "analysis",
                                            " to=functions.f",
                                            "{\"name\":\"f\"}",
                                            "<function=f>",
                                            "<parameter=p>",
                                            "</parameter>",
                                            "\n",
                                            "text",
                                            "\xFF"};
    for (uint64_t seed = 0; seed < 400; ++seed) {
        Prng prng(seed);
        ChatOutputOptions options;
        options.format.syntax = static_cast<ChatSyntax>(prng.below(4));
        options.format.thinks = prng.chance(1, 2);
        options.parse_tools = prng.chance(1, 2);
        options.begins_thinking = prng.chance(1, 4);
        std::string text;
        for (uint64_t i = prng.below(30); i > 0; --i)
            text += words[prng.below(words.size())];
        parsed(options, text);
    }
}

TEST(ForcedCallGrammar, FollowsTheSyntax) {
    const std::vector<ToolSchema> tools = {{"f", ""}, {"g", ""}};
    for (const ChatSyntax syntax : {ChatSyntax::kHermes, ChatSyntax::kTags, ChatSyntax::kHarmony}) {
        const auto grammar = forced_call_grammar({.syntax = syntax}, tools, false, false);
        ASSERT_TRUE(grammar.has_value());
        EXPECT_TRUE(grammar->contains("root ::= ")) << *grammar;
    }
    EXPECT_EQ(forced_call_grammar({}, tools, false, false).value(), "");
}

}  // namespace
}  // namespace bevy
