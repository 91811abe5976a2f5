// A conversation on the terminal.
#pragma once

#include "base/error.h"
#include "cli/options.h"
#include "cli/session.h"

namespace bevy {

// Reads messages from standard input and prints the answers as they come, until /exit or the end of
// the input. Ctrl-C stops an answer; at the prompt it ends the conversation. True: ended by Ctrl-C.
Result<bool> chat_loop(const RunOptions& options, Session& session);

}  // namespace bevy
