// Where the tokens of one request become text, on the engine thread, for a reader on another one.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "base/change_signal.h"
#include "engine/generation.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace bevy {

// What is known about a request at one moment.
struct RequestOutcome {
    std::string text;
    bool finished = false;
    FinishReason reason = FinishReason::kStop;
    RequestTimings timings;
    std::optional<Error> error;
};

// TokenSink's functions: engine thread. The rest: any thread.
class RequestSink final : public TokenSink {
public:
    // `tokenizer` and `signal` outlive it.
    RequestSink(const Tokenizer& tokenizer, std::span<const std::string> stop_strings,
                ChangeSignal& signal)
        : tokenizer_(tokenizer), detokenizer_(stop_strings), signal_(signal) {}

    bool on_token(TokenId token) override;
    void on_finish(FinishReason reason, const RequestTimings& timings,
                   std::optional<Error> error) override;

    RequestOutcome outcome() const;
    bool finished() const;
    // The text behind the first `offset` bytes, for those who print while it grows.
    std::string text_from(size_t offset) const;

private:
    const Tokenizer& tokenizer_;
    Detokenizer detokenizer_;  // engine thread
    ChangeSignal& signal_;
    mutable std::mutex mutex_;
    RequestOutcome outcome_;
};

}  // namespace bevy
