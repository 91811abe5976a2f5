// The vocabulary of a model file, through libllama: tokens, special tokens and chat templates.
//
// libllama opens the file a second time with vocab_only, so no weights are read. It trusts the
// file, so open a model with ModelFile first, which checks it.
//
// Ownership: holds libllama's model until destroyed; samplers made from it must not outlive it.
// Threads: immutable after open(), any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "text/tokenizer.h"

struct llama_model;
struct llama_vocab;

namespace bevy {

class LlamaVocabulary final : public Tokenizer {
public:
    // `path`: the model file, or its first shard. Errors: kNotFound (no such file), kCorruptFile
    // (libllama refuses it, with its own words), kUnsupported (a file without a vocabulary).
    static Result<std::unique_ptr<LlamaVocabulary>> open(const std::string& path);
    ~LlamaVocabulary() override;
    LlamaVocabulary(const LlamaVocabulary&) = delete;
    LlamaVocabulary& operator=(const LlamaVocabulary&) = delete;

    std::vector<TokenId> encode(std::string_view text, bool add_special,
                                bool parse_special) const override;
    std::string piece(TokenId token, bool special) const override;
    bool is_end_of_generation(TokenId token) const override;
    uint32_t vocabulary_size() const override { return vocabulary_size_; }

    // Their text, as chat templates write it; empty if the model has none.
    std::string bos_text() const;
    std::string eos_text() const;
    // libllama's number for the kind of tokenizer, which some clients show.
    int32_t kind() const;
    // Whether encode(add_special) puts BOS in front, or EOS behind.
    bool adds_bos() const;
    bool adds_eos() const;
    // All tokens that end a text, ascending.
    std::span<const TokenId> end_of_generation_tokens() const { return end_of_generation_; }
    // The model's default Jinja template, or the one called `name` ("tool_use"). Nothing if absent.
    std::optional<std::string> chat_template(const std::string& name = {}) const;

    // For text/llama_*.cc.
    const llama_vocab* handle() const { return vocab_; }

private:
    explicit LlamaVocabulary(llama_model* model);
    std::string token_text(TokenId token) const;

    struct ModelDeleter {
        void operator()(llama_model* model) const;
    };
    std::unique_ptr<llama_model, ModelDeleter> model_;
    const llama_vocab* vocab_ = nullptr;
    uint32_t vocabulary_size_ = 0;
    std::vector<TokenId> end_of_generation_;
};

}  // namespace bevy
