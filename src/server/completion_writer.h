// Replies of /completion, in llama-server's own shape, and of /v1/completions, in OpenAI's.
#pragma once

#include <memory>

#include "server/reply_writer.h"

namespace bevy {

std::unique_ptr<ReplyWriter> make_llama_writer(ReplyContext context);
std::unique_ptr<ReplyWriter> make_completion_writer(ReplyContext context);

}  // namespace bevy
