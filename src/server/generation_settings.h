// How a text is to be generated: what a request may say besides its prompt, in native values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/sampler.h"

namespace bevy {

// What becomes of a model's thoughts, which it writes before its answer.
enum class ReasoningFormat : uint8_t {
    kSeparate,  // in `reasoning_content` ("auto", "deepseek")
    kInline,    // in `content`, as the model wrote them ("none")
};

struct GenerationSettings {
    SamplingParams sampling;
    int32_t predict = -1;  // tokens to generate at most; -1: until the context is full
    std::vector<std::string> stop;
    std::string json_schema;   // what the answer must follow; empty: nothing
    uint32_t choices = 1;      // independent replies to one prompt
    bool cache_prompt = true;  // GenerationRequest::reuse_prompt
    bool stream = false;
    bool include_usage = false;      // a last event with the numbers of tokens
    bool timings_per_token = false;  // timings in every event
    bool return_tokens = false;      // token ids in the reply of /completion
    ReasoningFormat reasoning = ReasoningFormat::kSeparate;
};

}  // namespace bevy
