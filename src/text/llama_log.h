// Keeps libllama's messages off the terminal and at hand: a failed call of libllama says why only
// in its log.
#pragma once

#include <string>

namespace bevy {

// Routes libllama's log into this file's memory, once per process. Any thread.
void capture_llama_log();

// The first error message that libllama logged on this thread since the last call, without a
// newline; empty if there was none.
std::string take_llama_error();

}  // namespace bevy
