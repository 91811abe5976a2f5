// One generation as the engine's clients see it: what they hand in, what they get back.
//
// Tokens go out through a sink, in order, from the engine thread. What ends a text
// (end-of-generation tokens, stop strings) is the sink's business: it says so with the return value
// of on_token().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "base/units.h"
#include "text/sampler.h"

namespace bevy {

enum class FinishReason : uint8_t {
    kStop,       // the sink had what it wanted
    kLength,     // max_tokens generated, or the context is full
    kCancelled,  // cancel() or stop()
    kError,      // an expert could not be read, or the backend failed
};

// "stop", "length", "cancelled", "error".
const char* finish_reason_name(FinishReason reason);

// Where a request's time went. queued + prefill + decode is its whole life.
struct RequestTimings {
    Duration queued;   // from submission until a sequence was free
    Duration prefill;  // from then until its first token was sampled (or until it ended)
    Duration decode;   // from its first token until it ended
    Duration
        waiting_for_experts;  // of prefill and decode: an expert that it needs was still missing
    Duration computing;       // of prefill and decode: a step that advanced it was running
    uint32_t tokens_prompt = 0;
    uint32_t tokens_reused = 0;  // of the prompt: an earlier request had computed them
    uint32_t tokens_generated = 0;
};

// Called by the engine thread, which does nothing else meanwhile: be quick, never call back into
// the engine except through EngineThread::cancel().
class TokenSink {
public:
    virtual ~TokenSink() = default;
    // It begins to run; that many tokens of its prompt need not be computed. Never called for a
    // request that ends in the queue.
    virtual void on_start(uint32_t /*tokens_reused*/) {}
    // The next generated token. False: that was the last one that this sink wants.
    virtual bool on_token(TokenId token) = 0;
    // Exactly once, after the last on_token(); the engine does not touch the sink afterwards.
    // `error` is set for kError.
    virtual void on_finish(FinishReason reason, const RequestTimings& timings,
                           std::optional<Error> error) = 0;
};

struct GenerationRequest {
    std::vector<TokenId> prompt;  // at least one token
    uint32_t max_tokens = 0;      // at least 1; capped by what the context leaves
    std::unique_ptr<Sampler> sampler;
    TokenSink* sink = nullptr;  // outlives the request, that is until on_finish() has returned
    // Whole chunks of the prompt that an earlier request computed need not be computed again, and
    // later requests may use this one's. The reply is the same either way.
    bool reuse_prompt = false;
};

}  // namespace bevy
