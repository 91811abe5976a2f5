// The fields of a request that say how to generate, and the same settings as a reply tells them.
#pragma once

#include "server/generation_settings.h"
#include "server/json_body.h"
#include "text/tokenizer.h"

namespace bevy {

constexpr uint32_t kChoicesMax = 128;
constexpr uint32_t kProbabilitiesMax = 100;
constexpr size_t kStopStringsMax = 64;

// Which API the request is for: they differ in what `logprobs` means.
enum class Api : uint8_t {
    kLlama,       // /completion
    kCompletion,  // /v1/completions
    kChat,        // /v1/chat/completions
};

// Reads everything but the prompt, the messages and the tools; fields that are absent are as in
// `defaults`. Errors: 400 naming the field and what it may be; so are known fields that would
// change the reply and can't be honoured. Unknown fields are ignored.
ApiResult<GenerationSettings> read_settings(const Json& body, Api api,
                                            const GenerationSettings& defaults,
                                            const Tokenizer& tokenizer);

// As `generation_settings` in replies of /completion.
Json settings_json(const GenerationSettings& settings);
// The same without lists and texts, as `params` in /props and /slots.
Json short_settings_json(const GenerationSettings& settings);

}  // namespace bevy
