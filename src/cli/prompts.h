// From what the user typed to tokens.
#pragma once

#include <string>
#include <vector>

#include "base/error.h"
#include "cli/options.h"
#include "text/chat_template.h"
#include "text/llama_vocabulary.h"

namespace bevy {

// All prompts of the command line, in order: those of -p, then the lines of the file (empty lines
// are left out). Errors: kNotFound, kIo, kInvalidArgument (a file without prompts).
Result<std::vector<std::string>> collect_prompts(const GenerationOptions& options);

// The model's template, or ChatML.
Result<ChatTemplate> open_chat_template(const LlamaVocabulary& vocabulary);

// Tokens of a conversation, up to where the answer begins.
Result<std::vector<TokenId>> encode_chat(const LlamaVocabulary& vocabulary,
                                         const ChatTemplate& chat_template,
                                         const std::vector<ChatMessage>& messages);

// Tokens of a plain prompt. kInvalidArgument when there are none.
Result<std::vector<TokenId>> encode_plain(const LlamaVocabulary& vocabulary,
                                          const std::string& prompt);

}  // namespace bevy
