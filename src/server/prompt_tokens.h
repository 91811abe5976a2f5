// Prompts of completions, which come as text, as token ids, or as a mixture, one or several.
#pragma once

#include <string>
#include <vector>

#include "server/json_body.h"
#include "text/tokenizer.h"

namespace bevy {

constexpr size_t kPromptsMax = 256;  // of one request

// `body.prompt`. Errors: 400.
ApiResult<std::vector<std::vector<TokenId>>> read_prompts(const Json& body,
                                                          const Tokenizer& tokenizer);
// Text, or an array of text and token ids, as one list of tokens. BOS is put in front where the
// vocabulary wants it and `add_special` says so.
ApiResult<std::vector<TokenId>> read_tokens(const Json& json, const Tokenizer& tokenizer,
                                            bool add_special, bool parse_special);
// Valid UTF-8, special tokens included.
std::string text_of(const std::vector<TokenId>& tokens, const Tokenizer& tokenizer);

}  // namespace bevy
