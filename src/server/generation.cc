#include "server/generation.h"

#include <algorithm>
#include <format>
#include <utility>

#include "text/llama_sampler_chain.h"

namespace bevy {
namespace {

constexpr Duration kLetGoMax = milliseconds(100);
constexpr uint32_t kRandomSeed = 0xFFFFFFFF;

ApiResult<void> check_prompts(const std::vector<std::vector<TokenId>>& prompts, uint32_t context) {
    for (const std::vector<TokenId>& prompt : prompts) {
        if (prompt.size() >= context)
            return std::unexpected(prompt_too_long(prompt.size(), context));
        if (prompt.empty())
            return std::unexpected(invalid_request("The prompt has no tokens"));
    }
    return {};
}

}  // namespace

ApiResult<std::unique_ptr<Generation>> Generation::start(
    const ServedModel& model, Admission& admission,
    const std::vector<std::vector<TokenId>>& prompts, const GenerationSettings& settings,
    bool show_special) {
    if (ApiResult<void> checked = check_prompts(prompts, model.context); !checked)
        return std::unexpected(checked.error());
    const auto count = static_cast<uint32_t>(prompts.size()) * settings.choices;
    if (count > admission.capacity())
        return std::unexpected(invalid_request(
            std::format("The request asks for {} texts at once; this server takes at most {}",
                        count, admission.capacity())));
    switch (admission.enter(count)) {
        case Admission::Answer::kCome:
            break;
        case Admission::Answer::kFull:
            return std::unexpected(unavailable("The queue is full; try again later", 1));
        case Admission::Answer::kClosed:
            return std::unexpected(unavailable("The server is shutting down"));
    }
    std::unique_ptr<Generation> generation(new Generation(model, admission));
    generation->submitted_ = generation->clock_.now();
    for (const std::vector<TokenId>& prompt : prompts) {
        GenerationSettings choice = settings;
        for (uint32_t i = 0; i < settings.choices; ++i) {
            ApiResult<void> submitted = generation->submit(prompt, choice, show_special);
            if (!submitted) {
                admission.turn_back(count - static_cast<uint32_t>(generation->parts_.size()));
                return std::unexpected(submitted.error());
            }
            if (choice.sampling.seed != kRandomSeed)
                ++choice.sampling.seed;
        }
    }
    return generation;
}

ApiResult<void> Generation::submit(const std::vector<TokenId>& prompt,
                                   const GenerationSettings& settings, bool show_special) {
    Result<std::unique_ptr<Sampler>> sampler =
        make_sampler(*model_.vocabulary, settings.sampling, model_.context, prompt);
    if (!sampler)
        return std::unexpected(api_error(sampler.error()));
    Part part{.tokens_prompt = static_cast<uint32_t>(prompt.size())};
    TokenStreamOptions options{.stop_strings = settings.stop, .show_special = show_special};
    // The sampler lives until on_finish(), which is as long as the stream uses it.
    if (settings.sampling.n_probs)
        options.sampler = sampler->get();
    options.on_released = [&admission = admission_](const RequestTimings& timings) {
        admission.leave(timings);
    };
    part.stream = std::make_unique<TokenStream>(*model_.vocabulary, std::move(options), signal_);
    GenerationRequest request;
    request.prompt = prompt;
    // As llama-server, which generates a token even if none is asked for.
    request.max_tokens = settings.predict < 0
                             ? model_.context
                             : std::max(static_cast<uint32_t>(settings.predict), 1u);
    request.sampler = std::move(*sampler);
    request.reuse_prompt = settings.cache_prompt;
    request.sink = part.stream.get();
    Result<RequestId> id = model_.engine->submit(std::move(request));
    if (!id)
        return std::unexpected(api_error(id.error()));
    part.id = *id;
    parts_.push_back(std::move(part));
    return {};
}

Generation::~Generation() {
    for (const Part& part : parts_) {
        if (!part.stream->released())
            model_.engine->cancel(part.id);
    }
    for (const Part& part : parts_) {
        while (!part.stream->released())
            signal_.wait(kLetGoMax);
    }
    admission_.reply_ends();
}

}  // namespace bevy
