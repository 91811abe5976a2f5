#include "cli/request_sink.h"

#include <utility>

namespace bevy {

bool RequestSink::on_token(TokenId token) {
    if (tokenizer_.is_end_of_generation(token))
        return false;
    const std::string text = detokenizer_.push(tokenizer_.piece(token, false));
    if (!text.empty()) {
        const std::lock_guard lock(mutex_);
        outcome_.text += text;
    }
    signal_.notify();
    return !detokenizer_.stopped();
}

void RequestSink::on_finish(FinishReason reason, const RequestTimings& timings,
                            std::optional<Error> error) {
    const std::string rest = detokenizer_.finish();
    {
        const std::lock_guard lock(mutex_);
        outcome_.text += rest;
        outcome_.finished = true;
        outcome_.reason = reason;
        outcome_.timings = timings;
        outcome_.error = std::move(error);
    }
    signal_.notify();
}

RequestOutcome RequestSink::outcome() const {
    const std::lock_guard lock(mutex_);
    return outcome_;
}

bool RequestSink::finished() const {
    const std::lock_guard lock(mutex_);
    return outcome_.finished;
}

std::string RequestSink::text_from(size_t offset) const {
    const std::lock_guard lock(mutex_);
    return outcome_.text.substr(std::min(offset, outcome_.text.size()));
}

}  // namespace bevy
