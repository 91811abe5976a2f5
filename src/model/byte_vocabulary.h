// A vocabulary for models that were never trained: enough for libllama to load them and to turn any
// text into tokens and back. Every byte is a token, the rest are pronounceable made-up words that
// only the model itself can say, and three special tokens carry a ChatML template.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/error.h"
#include "model/gguf_writer.h"

namespace bevy {

constexpr uint32_t kByteVocabularyMin = 256 + 3;
constexpr uint32_t kByteVocabularyFirstWhole = 256;

// Sets the tokenizer.* keys. `whole` are further tokens, from kByteVocabularyFirstWhole on, that a
// text may contain: they are recognised in it, longest first, and come out as they are. Error:
// kInvalidArgument for fewer than kByteVocabularyMin tokens besides them.
Status write_byte_vocabulary(GgufWriter& writer, uint32_t tokens,
                             std::span<const std::string> whole = {});

}  // namespace bevy
