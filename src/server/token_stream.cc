#include "server/token_stream.h"

#include <utility>

namespace bevy {

TokenStream::TokenStream(const Tokenizer& tokenizer, TokenStreamOptions options,
                         ChangeSignal& signal)
    : tokenizer_(tokenizer),
      options_(std::move(options)),
      signal_(signal),
      detokenizer_(options_.stop_strings) {}

bool TokenStream::on_token(TokenId token) {
    const bool ends = tokenizer_.is_end_of_generation(token);
    GeneratedToken generated{.token = token, .tokens_reused = tokens_reused_};
    // What ends a text is not part of it, but some formats tell the endings apart.
    if (!ends || options_.show_special)
        generated.text = detokenizer_.push(tokenizer_.piece(token, options_.show_special));
    if (options_.sampler != nullptr) {
        if (const TokenProbabilities* probabilities = options_.sampler->probabilities())
            generated.probabilities = *probabilities;
    }
    {
        const std::lock_guard lock(mutex_);
        reader_too_slow_ = unread_.size() >= kUnreadTokensMax;
        if (!reader_too_slow_)
            unread_.push_back(std::move(generated));
    }
    signal_.notify();
    if (detokenizer_.stopped())
        kind_ = StopKind::kWord;
    else if (ends)
        kind_ = StopKind::kEnd;
    return !ends && !detokenizer_.stopped() && !reader_too_slow_;
}

void TokenStream::on_finish(FinishReason reason, const RequestTimings& timings,
                            std::optional<Error> error) {
    GenerationEnd end{.kind = kind_, .timings = timings, .error = std::move(error)};
    end.rest = detokenizer_.finish();
    end.stop_word = detokenizer_.stop_text();
    if (reader_too_slow_)
        end.error = Error{ErrorCode::kCancelled, "the reply was read too slowly", {}};
    else if (reason == FinishReason::kCancelled && !end.error)
        end.error = Error{ErrorCode::kCancelled, "the request was cancelled", {}};
    if (end.error)
        end.kind = StopKind::kNone;
    if (options_.on_released)
        options_.on_released(timings);
    const std::lock_guard lock(mutex_);
    arrived_end_ = std::move(end);
    // Under the lock: once it is released, the reader may destroy this object and the signal.
    signal_.notify();
}

std::vector<GeneratedToken> TokenStream::take() {
    const std::lock_guard lock(mutex_);
    if (arrived_end_ && !end_)
        end_ = *arrived_end_;
    return std::exchange(unread_, {});
}

bool TokenStream::released() const {
    const std::lock_guard lock(mutex_);
    return arrived_end_.has_value();
}

}  // namespace bevy
