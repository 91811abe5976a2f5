// From generated tokens to the bytes of a reply. One subclass per API; each makes events while the
// texts grow, or one body when all have ended, from the same calls.
//
// The shapes are those of llama-server, key by key and in its order; docs/http-api.md lists where
// they differ. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "server/generation_settings.h"
#include "server/json_body.h"
#include "server/token_stream.h"
#include "text/tokenizer.h"

namespace bevy {

// What is the same in all parts of a reply.
struct ReplyContext {
    const Tokenizer* tokenizer = nullptr;  // outlives the writer
    std::string model;                     // as the server names it
    std::string fingerprint;
    int64_t created = 0;  // seconds since 1970
    GenerationSettings settings;
    std::vector<std::string> prompts;     // one per choice; the text as the model saw it
    std::vector<uint32_t> tokens_prompt;  // one per choice
    Instant submitted;
};

// The timings of a reply, as llama-server gives them plus where the time went.
Json timings_json(const RequestTimings& timings);
// {"id", "token", "bytes", "logprob", "top_logprobs"}.
Json probabilities_json(const TokenProbabilities& probabilities, const Tokenizer& tokenizer);
// One event of a stream: "data: ...\n\n".
std::string sse_event(const Json& data);
std::string sse_event(std::string_view name, const Json& data);
// The last one of OpenAI's streams.
std::string sse_done();

class ReplyWriter {
public:
    explicit ReplyWriter(ReplyContext context);
    virtual ~ReplyWriter() = default;

    // Events for the next token of a choice; empty if there is nothing to tell, and without a
    // stream.
    std::string token(size_t choice, GeneratedToken token);
    // The choice has ended without an error.
    std::string end(size_t choice, const GenerationEnd& end);
    // All choices have ended: what closes the stream.
    virtual std::string closing() { return {}; }
    // All choices have ended: the whole reply.
    virtual Json whole() = 0;

protected:
    struct Choice {
        std::string text;
        std::vector<TokenId> tokens;
        std::vector<Json> probabilities;
        Instant first_token;
        uint32_t tokens_reused = 0;
        GenerationEnd end;
    };

    // In a stream: the token is part of `choices_[choice]` already; `token.text` is what it added.
    virtual std::string token_event(size_t choice, const GeneratedToken& token) = 0;
    // In a stream: `rest` was added to the text at the end.
    virtual std::string end_event(size_t choice, const std::string& rest) = 0;
    // Called for every token and every rest, in a stream or not, before the event is made.
    virtual void absorb(size_t, const std::string&) {}
    // The same, once, behind the last.
    virtual void absorb_end(size_t) {}

    // "stop" or "length".
    const char* finish_reason(size_t choice) const;
    // Timings of a choice that is not over, as far as they can be seen from outside.
    Json timings_so_far(size_t choice) const;
    // {"completion_tokens", "prompt_tokens", ...} of all choices, or of one.
    Json usage() const;
    Json usage_of(size_t choice) const;
    // Of all choices: when the first began and the last ended, and the sums of the tokens.
    Json timings() const;

    const ReplyContext context_;
    std::vector<Choice> choices_;

private:
    SystemClock clock_;
};

}  // namespace bevy
