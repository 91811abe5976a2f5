#include "model/byte_vocabulary.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace bevy {

namespace {

// As libllama numbers the types of tokens.
constexpr int32_t kNormal = 1;
constexpr int32_t kControl = 3;
constexpr int32_t kUserDefined = 4;

// Byte-level BPE writes each byte as a visible letter: itself where it is one, else from U+0100 on.
bool is_visible(uint32_t byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xff && byte != 0xad);
}

std::string utf8(uint32_t code_point) {
    if (code_point < 0x80)
        return std::string(1, static_cast<char>(code_point));
    // No letter of the alphabet lies beyond two bytes.
    return {static_cast<char>(0xc0 | (code_point >> 6)),
            static_cast<char>(0x80 | (code_point & 0x3f))};
}

std::array<std::string, 256> byte_letters() {
    std::array<std::string, 256> letters;
    uint32_t next_replacement = 0x100;
    for (uint32_t byte = 0; byte < letters.size(); ++byte)
        letters[byte] = utf8(is_visible(byte) ? byte : next_replacement++);
    return letters;
}

// The n-th word: two or more syllables behind a space. Different n give different words, because
// words of equal length are numbers in base 75 and the first digit of longer ones is never the
// zero.
std::string word(uint32_t n, const std::string& space) {
    constexpr std::string_view kConsonants = "bdfghklmnprstvz";
    constexpr std::string_view kVowels = "aeiou";
    constexpr auto kSyllables = static_cast<uint32_t>(kConsonants.size() * kVowels.size());
    std::string text;
    for (uint32_t rest = n + kSyllables; rest > 0; rest /= kSyllables) {
        const uint32_t syllable = rest % kSyllables;
        text = std::string{kConsonants[syllable / kVowels.size()],
                           kVowels[syllable % kVowels.size()]} +
               text;
    }
    return space + text;
}

constexpr std::string_view kChatTemplate =
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' "
    "}}{% endif %}";

}  // namespace

Status write_byte_vocabulary(GgufWriter& writer, uint32_t tokens,
                             std::span<const std::string> whole) {
    const uint64_t tokens_min = kByteVocabularyMin + whole.size();
    if (tokens < tokens_min)
        return fail(ErrorCode::kInvalidArgument,
                    "a vocabulary of " + std::to_string(tokens) + " tokens is too small",
                    "the smallest has " + std::to_string(tokens_min) + ": all bytes, " +
                        (whole.empty() ? "" : std::to_string(whole.size()) + " whole words, ") +
                        "and three special tokens");
    const std::array<std::string, 256> letters = byte_letters();
    std::vector<std::string> texts(letters.begin(), letters.end());
    texts.reserve(tokens);
    texts.insert(texts.end(), whole.begin(), whole.end());
    for (uint32_t n = 0; texts.size() < tokens - 3; ++n)
        texts.push_back(word(n, letters[' ']));
    for (const char* special : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"})
        texts.emplace_back(special);
    std::vector<int32_t> types(tokens, kNormal);
    std::fill_n(types.begin() + kByteVocabularyFirstWhole, whole.size(), kUserDefined);
    for (uint32_t i = tokens - 3; i < tokens; ++i)
        types[i] = kControl;

    writer.set_str("tokenizer.ggml.model", "gpt2");
    writer.set_str("tokenizer.ggml.pre", "qwen2");
    writer.set_str_array("tokenizer.ggml.tokens", texts);
    writer.set_i32_array("tokenizer.ggml.token_type", types);
    // libllama wants the key; without merges every byte of a text is a token.
    writer.set_str_array("tokenizer.ggml.merges", {});
    writer.set_u32("tokenizer.ggml.bos_token_id", tokens - 3);
    writer.set_u32("tokenizer.ggml.padding_token_id", tokens - 3);
    writer.set_u32("tokenizer.ggml.eos_token_id", tokens - 1);
    writer.set_bool("tokenizer.ggml.add_bos_token", false);
    writer.set_str("tokenizer.chat_template", kChatTemplate);
    return {};
}

}  // namespace bevy
