// Text to tokens and back, by the model's own vocabulary. Any thread; immutable after construction.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace bevy {

class Tokenizer {
public:
    virtual ~Tokenizer() = default;
    // `add_special` adds what the model wants around a text (BOS); `parse_special` lets text such
    // as
    // <|im_end|> become the special token instead of its letters. Never throws: text that the
    // vocabulary can't express, or of 2 GiB and more, gives no tokens.
    virtual std::vector<TokenId> encode(std::string_view text, bool add_special,
                                        bool parse_special) const = 0;
    // The bytes of one token; may be an incomplete UTF-8 sequence. Special tokens give an empty
    // string unless `special`.
    virtual std::string piece(TokenId token, bool special) const = 0;
    virtual bool is_end_of_generation(TokenId token) const = 0;
    virtual uint32_t vocabulary_size() const = 0;
};

}  // namespace bevy
