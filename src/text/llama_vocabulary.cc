#include "text/llama_vocabulary.h"

#include <llama.h>

#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <limits>

#include "text/llama_log.h"

namespace bevy {
namespace {

std::string why(const std::string& fallback) {
    const std::string logged = take_llama_error();
    return logged.empty() ? fallback : logged;
}

}  // namespace

void LlamaVocabulary::ModelDeleter::operator()(llama_model* model) const {
    llama_model_free(model);
}

LlamaVocabulary::LlamaVocabulary(llama_model* model)
    : model_(model), vocab_(llama_model_get_vocab(model)) {
    vocabulary_size_ = static_cast<uint32_t>(std::max(0, llama_vocab_n_tokens(vocab_)));
    for (TokenId token = 0; token < static_cast<TokenId>(vocabulary_size_); ++token) {
        if (llama_vocab_is_eog(vocab_, token))
            end_of_generation_.push_back(token);
    }
}

LlamaVocabulary::~LlamaVocabulary() = default;

Result<std::unique_ptr<LlamaVocabulary>> LlamaVocabulary::open(const std::string& path) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(path, error))
        return fail(ErrorCode::kNotFound, "no model file at '" + path + "'",
                    "give the path of a .gguf file with -m");
    capture_llama_log();
    take_llama_error();
    llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    llama_model* model = nullptr;
    std::string cause = "no reason given";
    try {
        model = llama_model_load_from_file(path.c_str(), params);
    } catch (const std::exception& e) {
        cause = e.what();
    }
    if (model == nullptr)
        return fail(ErrorCode::kCorruptFile,
                    "can't read the vocabulary of '" + path + "': " + why(cause),
                    "check the file, for example by downloading it again");
    std::unique_ptr<LlamaVocabulary> vocabulary(new LlamaVocabulary(model));
    if (llama_vocab_type(vocabulary->vocab_) == LLAMA_VOCAB_TYPE_NONE ||
        vocabulary->vocabulary_size_ == 0)
        return fail(ErrorCode::kUnsupported, "'" + path + "' has no vocabulary",
                    "use a model file that contains its tokenizer");
    return vocabulary;
}

std::vector<TokenId> LlamaVocabulary::encode(std::string_view text, bool add_special,
                                             bool parse_special) const {
    if (text.size() > static_cast<size_t>(std::numeric_limits<int32_t>::max()))
        return {};
    // One token per byte and the special ones is nearly always enough; libllama says if it is not.
    std::vector<TokenId> tokens(text.size() + 8);
    const auto tokenize = [&] {
        return llama_tokenize(vocab_, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                              static_cast<int32_t>(tokens.size()), add_special, parse_special);
    };
    try {
        int32_t count = tokenize();
        if (count < 0 && count != std::numeric_limits<int32_t>::min()) {
            tokens.resize(static_cast<size_t>(-static_cast<int64_t>(count)));
            count = tokenize();
        }
        tokens.resize(static_cast<size_t>(std::max(count, 0)));
        return tokens;
    } catch (const std::exception&) {
        return {};  // a vocabulary without tokens for these bytes
    }
}

std::string LlamaVocabulary::piece(TokenId token, bool special) const {
    if (token < 0 || token >= static_cast<TokenId>(vocabulary_size_))
        return {};
    std::string bytes(64, '\0');
    const auto to_piece = [&] {
        return llama_token_to_piece(vocab_, token, bytes.data(), static_cast<int32_t>(bytes.size()),
                                    0, special);
    };
    try {
        int32_t length = to_piece();
        if (length < 0) {
            bytes.resize(static_cast<size_t>(-length));
            length = to_piece();
        }
        bytes.resize(static_cast<size_t>(std::max(length, 0)));
        return bytes;
    } catch (const std::exception&) {
        return {};  // a byte token whose text is not a byte
    }
}

bool LlamaVocabulary::is_end_of_generation(TokenId token) const {
    return std::ranges::binary_search(end_of_generation_, token);
}

std::string LlamaVocabulary::token_text(TokenId token) const {
    if (token < 0 || token >= static_cast<TokenId>(vocabulary_size_))
        return {};
    const char* text = llama_vocab_get_text(vocab_, token);
    return text == nullptr ? std::string() : std::string(text);
}

std::string LlamaVocabulary::bos_text() const {
    return token_text(llama_vocab_bos(vocab_));
}
std::string LlamaVocabulary::eos_text() const {
    return token_text(llama_vocab_eos(vocab_));
}
int32_t LlamaVocabulary::kind() const {
    return static_cast<int32_t>(llama_vocab_type(vocab_));
}
bool LlamaVocabulary::adds_bos() const {
    return llama_vocab_get_add_bos(vocab_);
}
bool LlamaVocabulary::adds_eos() const {
    return llama_vocab_get_add_eos(vocab_);
}

std::optional<std::string> LlamaVocabulary::chat_template(const std::string& name) const {
    const char* source =
        llama_model_chat_template(model_.get(), name.empty() ? nullptr : name.c_str());
    if (source == nullptr || *source == '\0')
        return std::nullopt;
    return std::string(source);
}

}  // namespace bevy
