// A vocabulary for models that were never trained: enough for libllama to load them and to turn any
// text into tokens and back. Every byte is a token, the rest are pronounceable made-up words that
// only the model itself can say, and three special tokens carry a ChatML template.
#pragma once

#include <cstdint>

#include "base/error.h"
#include "model/gguf_writer.h"

namespace bevy {

constexpr uint32_t kByteVocabularyMin = 256 + 3;

// Sets the tokenizer.* keys. Error: kInvalidArgument for fewer than kByteVocabularyMin tokens.
Status write_byte_vocabulary(GgufWriter& writer, uint32_t tokens);

}  // namespace bevy
