// The tokens of one generation, on their way from the engine thread to the connection's thread.
//
// The engine never waits for a reader: what is not read yet is kept, up to a limit, and a reader
// who falls behind further loses the request. The reader in turn may go away at any moment, as long
// as this object stays until the engine has said that the request is over.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/change_signal.h"
#include "engine/generation.h"
#include "text/detokenizer.h"
#include "text/sampler.h"
#include "text/tokenizer.h"

namespace bevy {

constexpr size_t kUnreadTokensMax = 8192;

struct GeneratedToken {
    TokenId token = 0;
    std::string text;  // what is certain now, and was not before; may be empty
    std::optional<TokenProbabilities> probabilities;
    uint32_t tokens_reused = 0;  // of the prompt
};

// What ended a text.
enum class StopKind : uint8_t {
    kNone,   // it was cancelled or failed
    kEnd,    // a token that ends texts
    kWord,   // a stop string
    kLimit,  // as many tokens as were asked for, or the context is full
};

struct GenerationEnd {
    StopKind kind = StopKind::kNone;
    std::string rest;  // text that was held back
    std::string stop_word;
    RequestTimings timings;
    std::optional<Error> error;  // it failed, was cancelled, or the reader was too slow
};

struct TokenStreamOptions {
    std::vector<std::string> stop_strings;
    bool show_special = false;         // special tokens are part of the text
    const Sampler* sampler = nullptr;  // the request's own, for probabilities; null: none wanted
    // Engine thread, when the engine lets go of the request; may be empty.
    std::function<void(const RequestTimings&)> on_released;
};

// TokenSink's functions: engine thread. The rest: the reader's thread.
class TokenStream final : public TokenSink {
public:
    // `tokenizer` and `signal` outlive it.
    TokenStream(const Tokenizer& tokenizer, TokenStreamOptions options, ChangeSignal& signal);

    void on_start(uint32_t tokens_reused) override { tokens_reused_ = tokens_reused; }
    bool on_token(TokenId token) override;
    void on_finish(FinishReason reason, const RequestTimings& timings,
                   std::optional<Error> error) override;

    // Takes what has come since the last call.
    std::vector<GeneratedToken> take();
    // Set once everything was taken and nothing more comes.
    const std::optional<GenerationEnd>& end() const { return end_; }
    // The engine has let go of this object.
    bool released() const;

private:
    const Tokenizer& tokenizer_;
    const TokenStreamOptions options_;
    ChangeSignal& signal_;

    // Engine thread.
    Detokenizer detokenizer_;
    uint32_t tokens_reused_ = 0;
    StopKind kind_ = StopKind::kLimit;
    bool reader_too_slow_ = false;

    mutable std::mutex mutex_;
    std::vector<GeneratedToken> unread_;
    std::optional<GenerationEnd> arrived_end_;

    std::optional<GenerationEnd> end_;  // reader's thread
};

}  // namespace bevy
