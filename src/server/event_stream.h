// Runs a generation to its end and makes the reply: piece by piece, or at once.
#pragma once

#include <functional>
#include <memory>

#include "server/api_error.h"
#include "server/generation.h"
#include "server/reply_writer.h"

namespace bevy {

// Waits for all texts and returns the whole reply. A client who has gone ends it early; what is
// returned then is read by nobody.
HttpReply whole_reply(std::unique_ptr<Generation> generation, std::unique_ptr<ReplyWriter> writer,
                      const std::function<bool()>& client_gone);

// Waits for the first token, so that what fails before it is an error by its status, then streams.
// After `ping_s` seconds without anything to say, a comment is sent; 0: never.
HttpReply streamed_reply(std::unique_ptr<Generation> generation,
                         std::unique_ptr<ReplyWriter> writer, uint32_t ping_s,
                         const std::function<bool()>& client_gone);

}  // namespace bevy
