// What replies of chats have in common: each choice's text is taken apart into thoughts, answer and
// calls of tools.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "server/chat_writer.h"
#include "server/random_id.h"

namespace bevy {

class ParsedWriter : public ReplyWriter {
protected:
    struct Message {
        explicit Message(const ChatOutputOptions& options) : parser(options) {}

        ChatOutputParser parser;
        std::string reasoning;
        std::string content;
        std::vector<ToolCall> tool_calls;
        ChatDelta delta;  // what the last piece of text added
    };

    ParsedWriter(ReplyContext context, ChatReplyOptions options)
        : ReplyWriter(std::move(context)), options_(std::move(options)) {
        const ChatOutputOptions output = {
            .format = options_.format,
            .parse_tools = options_.parse_tools,
            .separate_reasoning = context_.settings.reasoning == ReasoningFormat::kSeparate &&
                                  options_.prefill.empty(),
            .begins_thinking = options_.begins_thinking,
            .tools = options_.tools,
        };
        for (size_t i = 0; i < choices_.size(); ++i) {
            messages_.emplace_back(output);
            // Told with the first token, so that streams and whole replies are alike.
            messages_.back().delta.content = options_.prefill;
            messages_.back().content = options_.prefill;
        }
    }

    void absorb(size_t index, const std::string& text) override {
        take(messages_[index], messages_[index].parser.push(text));
    }
    void absorb_end(size_t index) override {
        take(messages_[index], messages_[index].parser.finish());
    }

    // What was added since the last call.
    ChatDelta take_delta(size_t index) { return std::exchange(messages_[index].delta, {}); }

    const ChatReplyOptions options_;
    std::vector<Message> messages_;

private:
    static void take(Message& message, ChatDelta delta) {
        for (ToolCall& call : delta.tool_calls) {
            call.id = random_id();
            message.tool_calls.push_back(call);
            message.delta.tool_calls.push_back(std::move(call));
        }
        message.reasoning += delta.reasoning;
        message.content += delta.content;
        message.delta.reasoning += delta.reasoning;
        message.delta.content += delta.content;
    }
};

}  // namespace bevy
