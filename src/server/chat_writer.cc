#include "server/chat_writer.h"

#include <utility>

#include "server/parsed_writer.h"

namespace bevy {
namespace {

Json call_json(const ToolCall& call) {
    return {{"type", "function"},
            {"function", {{"name", call.name}, {"arguments", call.arguments}}},
            {"id", call.id}};
}

class ChatWriter final : public ParsedWriter {
public:
    ChatWriter(ReplyContext context, ChatReplyOptions options)
        : ParsedWriter(std::move(context), std::move(options)),
          id_("chatcmpl-" + random_id()),
          calls_told_(choices_.size()),
          begun_(choices_.size()),
          untold_(choices_.size()) {}

    std::string closing() override {
        std::string events;
        if (context_.settings.include_usage) {
            Json json = chunk(Json::array());
            json["usage"] = usage();
            json["timings"] = timings();
            events = sse_event(json);
        }
        return events + sse_done();
    }

    Json whole() override {
        Json list = Json::array();
        for (size_t i = 0; i < choices_.size(); ++i) {
            Json choice = {{"finish_reason", reason(i)}, {"index", i}, {"message", message(i)}};
            if (context_.settings.sampling.n_probs)
                choice["logprobs"] = {{"content", choices_[i].probabilities}};
            list.push_back(std::move(choice));
        }
        return {{"choices", std::move(list)},
                {"created", context_.created},
                {"model", context_.model},
                {"system_fingerprint", context_.fingerprint},
                {"object", "chat.completion"},
                {"usage", usage()},
                {"id", id_},
                {"timings", timings()}};
    }

protected:
    std::string token_event(size_t index, const GeneratedToken& token) override {
        if (token.probabilities)
            untold_[index].push_back(choices_[index].probabilities.back());
        return delta_events(index);
    }

    std::string end_event(size_t index, const std::string&) override {
        std::string events = delta_events(index);
        Json choice = {
            {"finish_reason", reason(index)}, {"index", index}, {"delta", Json::object()}};
        if (!untold_[index].empty())
            choice["logprobs"] = {{"content", std::exchange(untold_[index], {})}};
        Json json = chunk(Json::array({std::move(choice)}));
        if (!context_.settings.include_usage)
            json["timings"] = timings_json(choices_[index].end.timings);
        return events + sse_event(json);
    }

private:
    const char* reason(size_t index) const {
        return messages_[index].tool_calls.empty() ? finish_reason(index) : "tool_calls";
    }

    Json message(size_t index) const {
        const Message& whole = messages_[index];
        const bool only_calls = whole.content.empty() && !whole.tool_calls.empty();
        Json json = {{"role", "assistant"}, {"content", only_calls ? Json() : Json(whole.content)}};
        if (!whole.reasoning.empty())
            json["reasoning_content"] = whole.reasoning;
        if (!whole.tool_calls.empty()) {
            json["tool_calls"] = Json::array();
            for (const ToolCall& call : whole.tool_calls)
                json["tool_calls"].push_back(call_json(call));
        }
        return json;
    }

    // One event for each kind of thing that is new.
    std::string delta_events(size_t index) {
        std::string events;
        if (!begun_[index]) {
            begun_[index] = true;
            events += event(index, {{"role", "assistant"}, {"content", nullptr}}, false);
        }
        const ChatDelta delta = take_delta(index);
        if (!delta.reasoning.empty())
            events += event(index, {{"reasoning_content", delta.reasoning}}, true);
        if (!delta.content.empty())
            events += event(index, {{"content", delta.content}}, true);
        for (const ToolCall& call : delta.tool_calls) {
            Json json = {{"index", calls_told_[index]++}};
            json.update(call_json(call));
            events += event(index, {{"tool_calls", Json::array({std::move(json)})}}, true);
        }
        return events;
    }

    std::string event(size_t index, Json delta, bool has_text) {
        Json choice = {{"finish_reason", nullptr}, {"index", index}, {"delta", std::move(delta)}};
        if (has_text && !untold_[index].empty())
            choice["logprobs"] = {{"content", std::exchange(untold_[index], {})}};
        Json json = chunk(Json::array({std::move(choice)}));
        if (has_text && context_.settings.timings_per_token)
            json["timings"] = timings_so_far(index);
        return sse_event(json);
    }

    Json chunk(Json choices) const {
        return {{"choices", std::move(choices)},
                {"created", context_.created},
                {"id", id_},
                {"model", context_.model},
                {"system_fingerprint", context_.fingerprint},
                {"object", "chat.completion.chunk"}};
    }

    const std::string id_;
    std::vector<uint32_t> calls_told_;
    std::vector<bool> begun_;                // the first event was sent
    std::vector<std::vector<Json>> untold_;  // probabilities that no event has told yet
};

}  // namespace

std::unique_ptr<ReplyWriter> make_chat_writer(ReplyContext context, ChatReplyOptions options) {
    return std::make_unique<ChatWriter>(std::move(context), std::move(options));
}

}  // namespace bevy
