#include "server/completion_writer.h"

#include <utility>

#include "server/random_id.h"
#include "server/settings_fields.h"

namespace bevy {
namespace {

const char* stop_type(StopKind kind) {
    switch (kind) {
        case StopKind::kEnd:
            return "eos";
        case StopKind::kWord:
            return "word";
        case StopKind::kLimit:
            return "limit";
        case StopKind::kNone:
            break;
    }
    return "none";
}

class LlamaWriter final : public ReplyWriter {
public:
    using ReplyWriter::ReplyWriter;

    Json whole() override {
        if (choices_.size() == 1)
            return last(0, true);
        Json list = Json::array();
        for (size_t i = 0; i < choices_.size(); ++i)
            list.push_back(last(i, true));
        return list;
    }

protected:
    std::string token_event(size_t index, const GeneratedToken& token) override {
        if (token.text.empty() && !token.probabilities)
            return {};
        const Choice& choice = choices_[index];
        Json json = {{"index", index},
                     {"content", token.text},
                     {"tokens", Json::array({token.token})},
                     {"stop", false},
                     {"id_slot", -1},
                     {"tokens_predicted", choice.tokens.size()},
                     {"tokens_evaluated", context_.tokens_prompt[index]}};
        if (context_.settings.timings_per_token)
            json["timings"] = timings_so_far(index);
        if (token.probabilities)
            json["completion_probabilities"] = Json::array({choice.probabilities.back()});
        return sse_event(json);
    }

    std::string end_event(size_t index, const std::string&) override {
        return sse_event(last(index, false));
    }

private:
    // The last event of a stream has only the text that was not told yet.
    Json last(size_t index, bool everything) const {
        const Choice& choice = choices_[index];
        const bool tokens = everything && context_.settings.return_tokens;
        const uint32_t prompt = context_.tokens_prompt[index];
        Json json = {{"index", index},
                     {"content", everything ? choice.text : choice.end.rest},
                     {"tokens", tokens ? Json(choice.tokens) : Json::array()},
                     {"id_slot", -1},
                     {"stop", true},
                     {"model", context_.model},
                     {"tokens_predicted", choice.tokens.size()},
                     {"tokens_evaluated", prompt},
                     {"generation_settings", settings_json(context_.settings)},
                     {"prompt", context_.prompts[index]},
                     {"has_new_line", choice.text.contains('\n')},
                     {"truncated", false},
                     {"stop_type", stop_type(choice.end.kind)},
                     {"stopping_word", choice.end.stop_word},
                     {"tokens_cached", prompt + choice.tokens.size() - 1},
                     {"timings", timings_json(choice.end.timings)}};
        if (everything && context_.settings.sampling.n_probs)
            json["completion_probabilities"] = choice.probabilities;
        return json;
    }
};

class CompletionWriter final : public ReplyWriter {
public:
    explicit CompletionWriter(ReplyContext context)
        : ReplyWriter(std::move(context)), id_("chatcmpl-" + random_id()) {}

    std::string closing() override { return sse_done(); }

    Json whole() override {
        Json list = Json::array();
        for (size_t i = 0; i < choices_.size(); ++i) {
            const Choice& choice = choices_[i];
            list.push_back(part(i, choice.text, choice.probabilities, finish_reason(i)));
        }
        Json json = {{"choices", std::move(list)},
                     {"created", context_.created},
                     {"model", context_.model},
                     {"system_fingerprint", context_.fingerprint},
                     {"object", "text_completion"},
                     {"usage", usage()},
                     {"id", id_},
                     {"timings", timings()}};
        return json;
    }

protected:
    std::string token_event(size_t index, const GeneratedToken& token) override {
        if (token.text.empty() && !token.probabilities)
            return {};
        std::vector<Json> probabilities;
        if (token.probabilities)
            probabilities.push_back(choices_[index].probabilities.back());
        Json json = chunk(Json::array({part(index, token.text, probabilities, nullptr)}));
        if (context_.settings.timings_per_token)
            json["timings"] = timings_so_far(index);
        return sse_event(json);
    }

    std::string end_event(size_t index, const std::string& rest) override {
        Json json = chunk(Json::array({part(index, rest, {}, finish_reason(index))}));
        // Of this choice, whether it was asked for or not, as llama-server does here.
        json["usage"] = usage_of(index);
        json["timings"] = timings_json(choices_[index].end.timings);
        return sse_event(json);
    }

private:
    static Json part(size_t index, const std::string& text, const std::vector<Json>& probabilities,
                     const char* reason) {
        Json logprobs;
        if (!probabilities.empty())
            logprobs = {{"content", probabilities}};
        return {{"text", text},
                {"index", index},
                {"logprobs", std::move(logprobs)},
                {"finish_reason", reason == nullptr ? Json() : Json(reason)}};
    }

    Json chunk(Json choices) const {
        return {{"choices", std::move(choices)}, {"created", context_.created},
                {"model", context_.model},       {"system_fingerprint", context_.fingerprint},
                {"object", "text_completion"},   {"id", id_}};
    }

    const std::string id_;
};

}  // namespace

std::unique_ptr<ReplyWriter> make_llama_writer(ReplyContext context) {
    return std::make_unique<LlamaWriter>(std::move(context));
}

std::unique_ptr<ReplyWriter> make_completion_writer(ReplyContext context) {
    return std::make_unique<CompletionWriter>(std::move(context));
}

}  // namespace bevy
