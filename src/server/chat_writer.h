// Replies of /v1/chat/completions and /v1/responses, in OpenAI's shapes.
#pragma once

#include <memory>

#include "server/reply_writer.h"
#include "text/chat_format.h"

namespace bevy {

// What a chat's reply needs beyond that of a completion.
struct ChatReplyOptions {
    ChatFormat format;
    bool parse_tools = false;
    bool begins_thinking = false;
    std::vector<ToolSchema> tools;
    std::string prefill;  // what the client wrote of the answer; the reply begins with it
};

std::unique_ptr<ReplyWriter> make_chat_writer(ReplyContext context, ChatReplyOptions options);
std::unique_ptr<ReplyWriter> make_responses_writer(ReplyContext context, ChatReplyOptions options);

}  // namespace bevy
