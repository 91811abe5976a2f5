#include "server/reply_writer.h"

#include <algorithm>
#include <utility>

#include "text/detokenizer.h"

namespace bevy {
namespace {

double milliseconds_of(Duration duration) {
    // Microseconds are precise enough, and print shorter.
    const int64_t microseconds = duration.ns / 1000;
    return static_cast<double>(microseconds) / 1000;
}

double ratio(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

Json usage_json(uint64_t prompt, uint64_t cached, uint64_t completion) {
    return {{"completion_tokens", completion},
            {"prompt_tokens", prompt},
            {"total_tokens", prompt + completion},
            {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

Json token_json(const TokenProbability& probability, const Tokenizer& tokenizer) {
    const std::string bytes = tokenizer.piece(probability.token, false);
    std::string text;
    Utf8Repair repair;
    repair.push(bytes, text);
    repair.finish(text);
    Json numbers = Json::array();
    for (const char byte : bytes)
        numbers.push_back(static_cast<unsigned char>(byte));
    return {{"id", probability.token},
            {"token", std::move(text)},
            {"bytes", std::move(numbers)},
            {"logprob", probability.log_probability}};
}

}  // namespace

Json timings_json(const RequestTimings& t) {
    const uint32_t prompt = t.tokens_prompt - t.tokens_reused;  // that had to be computed
    const double prompt_ms = milliseconds_of(t.prefill);
    const double predicted_ms = milliseconds_of(t.decode);
    // The first token comes with the end of the prompt.
    const double decoded = t.tokens_generated > 0 ? t.tokens_generated - 1 : 0;
    return {{"cache_n", t.tokens_reused},
            {"prompt_n", prompt},
            {"prompt_ms", prompt_ms},
            {"prompt_per_token_ms", ratio(prompt_ms, prompt)},
            {"prompt_per_second", ratio(1e3 * prompt, prompt_ms)},
            {"predicted_n", t.tokens_generated},
            {"predicted_ms", predicted_ms},
            {"predicted_per_token_ms", ratio(predicted_ms, decoded)},
            {"predicted_per_second", ratio(1e3 * decoded, predicted_ms)},
            {"queued_ms", milliseconds_of(t.queued)},
            {"experts_wait_ms", milliseconds_of(t.waiting_for_experts)},
            {"compute_ms", milliseconds_of(t.computing)}};
}

Json probabilities_json(const TokenProbabilities& probabilities, const Tokenizer& tokenizer) {
    Json json = token_json(probabilities.chosen, tokenizer);
    Json top = Json::array();
    for (const TokenProbability& probability : probabilities.top)
        top.push_back(token_json(probability, tokenizer));
    json["top_logprobs"] = std::move(top);
    return json;
}

std::string sse_event(const Json& data) {
    return "data: " + json_text(data) + "\n\n";
}

std::string sse_event(std::string_view name, const Json& data) {
    return "event: " + std::string(name) + "\n" + sse_event(data);
}

std::string sse_done() {
    return "data: [DONE]\n\n";
}

ReplyWriter::ReplyWriter(ReplyContext context)
    : context_(std::move(context)), choices_(context_.tokens_prompt.size()) {}

std::string ReplyWriter::token(size_t index, GeneratedToken token) {
    Choice& choice = choices_[index];
    if (choice.tokens.empty())
        choice.first_token = clock_.now();
    choice.tokens_reused = token.tokens_reused;
    choice.tokens.push_back(token.token);
    choice.text += token.text;
    if (token.probabilities)
        choice.probabilities.push_back(
            probabilities_json(*token.probabilities, *context_.tokenizer));
    absorb(index, token.text);
    return context_.settings.stream ? token_event(index, token) : std::string();
}

std::string ReplyWriter::end(size_t index, const GenerationEnd& end) {
    Choice& choice = choices_[index];
    choice.end = end;
    choice.text += end.rest;
    absorb(index, end.rest);
    absorb_end(index);
    return context_.settings.stream ? end_event(index, end.rest) : std::string();
}

const char* ReplyWriter::finish_reason(size_t index) const {
    return choices_[index].end.kind == StopKind::kLimit ? "length" : "stop";
}

Json ReplyWriter::timings_so_far(size_t index) const {
    const Choice& choice = choices_[index];
    const Instant now = clock_.now();
    RequestTimings seen;
    seen.tokens_prompt = context_.tokens_prompt[index];
    seen.tokens_reused = choice.tokens_reused;
    seen.tokens_generated = static_cast<uint32_t>(choice.tokens.size());
    seen.prefill = choice.first_token - context_.submitted;
    seen.decode = now - choice.first_token;
    Json json = timings_json(seen);
    for (const char* unknown : {"queued_ms", "experts_wait_ms", "compute_ms"})
        json.erase(unknown);
    return json;
}

Json ReplyWriter::usage() const {
    // All choices of a prompt share it: counted once, as OpenAI does.
    uint64_t prompt = 0;
    uint64_t cached = 0;
    uint64_t completion = 0;
    for (size_t i = 0; i < choices_.size(); ++i) {
        completion += choices_[i].end.timings.tokens_generated;
        if (i % context_.settings.choices == 0) {
            prompt += context_.tokens_prompt[i];
            cached += choices_[i].end.timings.tokens_reused;
        }
    }
    return usage_json(prompt, cached, completion);
}

Json ReplyWriter::usage_of(size_t index) const {
    const RequestTimings& timings = choices_[index].end.timings;
    return usage_json(context_.tokens_prompt[index], timings.tokens_reused,
                      timings.tokens_generated);
}

Json ReplyWriter::timings() const {
    RequestTimings all;
    for (const Choice& choice : choices_) {
        const RequestTimings& t = choice.end.timings;
        all.queued = std::max(all.queued, t.queued);
        all.prefill = std::max(all.prefill, t.prefill);
        all.decode = std::max(all.decode, t.decode);
        all.waiting_for_experts = std::max(all.waiting_for_experts, t.waiting_for_experts);
        all.computing = std::max(all.computing, t.computing);
        all.tokens_prompt += t.tokens_prompt;
        all.tokens_reused += t.tokens_reused;
        all.tokens_generated += t.tokens_generated;
    }
    return timings_json(all);
}

}  // namespace bevy
