// What one HTTP request generates: one text per prompt and choice, at the same time.
//
// The destructor cancels what still runs and waits until the engine has let go of it, which takes a
// turn of the engine's loop: dropping a Generation frees all that it held, at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/change_signal.h"
#include "base/clock.h"
#include "server/admission.h"
#include "server/api_error.h"
#include "server/generation_settings.h"
#include "server/served_model.h"
#include "server/token_stream.h"

namespace bevy {

// One thread, the connection's.
class Generation {
public:
    // Submits all, or nothing. The choices of a prompt lie behind each other; the i-th has the seed
    // of the settings plus i. Errors: 400 for what can't be generated, 503 when the queue is full
    // or the server shuts down. `model` and `admission` outlive it.
    static ApiResult<std::unique_ptr<Generation>> start(
        const ServedModel& model, Admission& admission,
        const std::vector<std::vector<TokenId>>& prompts, const GenerationSettings& settings,
        bool show_special);
    ~Generation();
    Generation(const Generation&) = delete;
    Generation& operator=(const Generation&) = delete;

    size_t size() const { return parts_.size(); }
    TokenStream& stream(size_t i) { return *parts_[i].stream; }
    uint32_t tokens_prompt(size_t i) const { return parts_[i].tokens_prompt; }
    Instant submitted() const { return submitted_; }
    // Returns when something has come, or after `timeout`.
    void wait(Duration timeout) { signal_.wait(timeout); }

private:
    struct Part {
        std::unique_ptr<TokenStream> stream;
        RequestId id;
        uint32_t tokens_prompt = 0;
    };
    Generation(const ServedModel& model, Admission& admission)
        : model_(model), admission_(admission) {
        admission_.reply_begins();
    }
    ApiResult<void> submit(const std::vector<TokenId>& prompt, const GenerationSettings& settings,
                           bool show_special);

    const ServedModel& model_;
    Admission& admission_;
    SystemClock clock_;
    Instant submitted_;
    ChangeSignal signal_;
    std::vector<Part> parts_;
};

}  // namespace bevy
