#include <ctime>
#include <utility>

#include "server/parsed_writer.h"

namespace bevy {
namespace {

// One message, and the calls of tools behind it. Choices other than the first are not asked for.
class ResponsesWriter final : public ParsedWriter {
public:
    ResponsesWriter(ReplyContext context, ChatReplyOptions options)
        : ParsedWriter(std::move(context), std::move(options)),
          id_("resp_" + random_id()),
          message_id_("msg_" + random_id()) {}

    std::string closing() override {
        Json response = whole();
        response.erase("completed_at");
        Json json = {{"type", "response.completed"}, {"response", std::move(response)}};
        json["timings"] = timings();
        return sse_event("response.completed", json);
    }

    Json whole() override {
        const Message& message = messages_.front();
        Json output = Json::array();
        if (!message.reasoning.empty())
            output.push_back({{"id", "rs_" + id_.substr(5)},
                              {"summary", Json::array()},
                              {"type", "reasoning"},
                              {"content", Json::array({{{"text", message.reasoning},
                                                        {"type", "reasoning_text"}}})},
                              {"status", "completed"}});
        if (!message.content.empty() || message.tool_calls.empty())
            output.push_back(message_item());
        for (const ToolCall& call : message.tool_calls)
            output.push_back(call_item(call));
        const Json counted = usage();
        const bool cut = choices_.front().end.kind == StopKind::kLimit;
        Json json = {{"completed_at", static_cast<int64_t>(std::time(nullptr))},
                     {"created_at", context_.created},
                     {"id", id_},
                     {"model", context_.model},
                     {"object", "response"},
                     {"output", std::move(output)},
                     {"status", cut ? "incomplete" : "completed"},
                     {"usage",
                      {{"input_tokens", counted["prompt_tokens"]},
                       {"output_tokens", counted["completion_tokens"]},
                       {"total_tokens", counted["total_tokens"]},
                       {"input_tokens_details", counted["prompt_tokens_details"]}}}};
        if (cut)
            json["incomplete_details"] = {{"reason", "max_output_tokens"}};
        return json;
    }

protected:
    std::string token_event(size_t index, const GeneratedToken&) override {
        return delta_events(index);
    }

    std::string end_event(size_t index, const std::string&) override {
        std::string events = delta_events(index);
        const Message& message = messages_[index];
        if (message_begun_) {
            events += sse_event("response.output_text.done", {{"type", "response.output_text.done"},
                                                              {"item_id", message_id_},
                                                              {"output_index", 0},
                                                              {"content_index", 0},
                                                              {"text", message.content}});
            events +=
                sse_event("response.content_part.done", {{"type", "response.content_part.done"},
                                                         {"item_id", message_id_},
                                                         {"output_index", 0},
                                                         {"content_index", 0},
                                                         {"part", text_part(message.content)}});
            events += item_event("response.output_item.done", message_item(), 0);
        }
        return events;
    }

private:
    static Json text_part(const std::string& text) {
        return {{"type", "output_text"},
                {"annotations", Json::array()},
                {"logprobs", Json::array()},
                {"text", text}};
    }

    Json message_item() const {
        return {{"content", Json::array({text_part(messages_.front().content)})},
                {"id", message_id_},
                {"role", "assistant"},
                {"status", "completed"},
                {"type", "message"}};
    }

    static Json call_item(const ToolCall& call) {
        return {{"type", "function_call"},     {"status", "completed"},
                {"arguments", call.arguments}, {"call_id", "call_" + call.id},
                {"id", "fc_" + call.id},       {"name", call.name}};
    }

    static std::string item_event(const char* type, Json item, uint32_t output) {
        return sse_event(type,
                         {{"type", type}, {"output_index", output}, {"item", std::move(item)}});
    }

    std::string begin() {
        Json response = {{"id", id_},
                         {"object", "response"},
                         {"created_at", context_.created},
                         {"status", "in_progress"},
                         {"model", context_.model},
                         {"output", Json::array()}};
        std::string events;
        for (const char* type : {"response.created", "response.in_progress"})
            events += sse_event(type, {{"type", type}, {"response", response}});
        return events;
    }

    std::string begin_message() {
        const std::string added = item_event("response.output_item.added",
                                             {{"content", Json::array()},
                                              {"id", message_id_},
                                              {"role", "assistant"},
                                              {"status", "in_progress"},
                                              {"type", "message"}},
                                             0);
        return added +
               sse_event("response.content_part.added", {{"type", "response.content_part.added"},
                                                         {"item_id", message_id_},
                                                         {"output_index", 0},
                                                         {"content_index", 0},
                                                         {"part", text_part("")}});
    }

    std::string delta_events(size_t index) {
        std::string events;
        if (!std::exchange(begun_, true))
            events += begin();
        const ChatDelta delta = take_delta(index);
        if (!delta.reasoning.empty())
            events += sse_event("response.reasoning_text.delta",
                                {{"type", "response.reasoning_text.delta"},
                                 {"item_id", "rs_" + id_.substr(5)},
                                 {"output_index", 0},
                                 {"content_index", 0},
                                 {"delta", delta.reasoning}});
        if (!delta.content.empty()) {
            if (!std::exchange(message_begun_, true))
                events += begin_message();
            events +=
                sse_event("response.output_text.delta", {{"type", "response.output_text.delta"},
                                                         {"item_id", message_id_},
                                                         {"output_index", 0},
                                                         {"content_index", 0},
                                                         {"delta", delta.content}});
        }
        for (const ToolCall& call : delta.tool_calls) {
            const uint32_t output = ++calls_told_;
            Json item = call_item(call);
            item["status"] = "in_progress";
            events += item_event("response.output_item.added", item, output);
            events += sse_event("response.function_call_arguments.done",
                                {{"type", "response.function_call_arguments.done"},
                                 {"item_id", "fc_" + call.id},
                                 {"output_index", output},
                                 {"name", call.name},
                                 {"arguments", call.arguments}});
            events += item_event("response.output_item.done", call_item(call), output);
        }
        return events;
    }

    const std::string id_;
    const std::string message_id_;
    bool begun_ = false;
    bool message_begun_ = false;
    uint32_t calls_told_ = 0;
};

}  // namespace

std::unique_ptr<ReplyWriter> make_responses_writer(ReplyContext context, ChatReplyOptions options) {
    return std::make_unique<ResponsesWriter>(std::move(context), std::move(options));
}

}  // namespace bevy
