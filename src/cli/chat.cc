#include "cli/chat.h"

#include <unistd.h>

#include <iostream>
#include <string>
#include <utility>

#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/prompts.h"
#include "cli/request_sink.h"
#include "cli/terminal.h"
#include "text/llama_sampler_chain.h"

namespace bevy {
namespace {

constexpr Duration kTurn = milliseconds(100);

class Conversation {
public:
    Conversation(const RunOptions& options, Session& session, ChatTemplate chat_template)
        : options_(options), session_(session), chat_template_(std::move(chat_template)) {
        reset();
    }

    void reset() {
        messages_.clear();
        if (!options_.generation.system.empty())
            messages_.push_back({"system", options_.generation.system});
    }

    // Prints the answer and keeps it. After an error the message is as if never sent.
    Status answer(const std::string& message) {
        messages_.push_back({"user", message});
        Result<std::string> text = generate();
        if (!text) {
            messages_.pop_back();
            return std::unexpected(text.error());
        }
        messages_.push_back({"assistant", std::move(*text)});
        return {};
    }

private:
    Result<std::string> generate() {
        Result<std::vector<TokenId>> tokens =
            encode_chat(session_.vocabulary(), chat_template_, messages_);
        if (!tokens)
            return std::unexpected(tokens.error());
        if (tokens->size() >= session_.context())
            return fail(ErrorCode::kBudget,
                        "the conversation has " + std::to_string(tokens->size()) +
                            " tokens, the context " + std::to_string(session_.context()),
                        "/reset starts a new one; -c gives a longer context");
        auto sampler =
            make_sampler(session_.vocabulary(), options_.sampling, session_.context(), *tokens);
        if (!sampler)
            return std::unexpected(sampler.error());
        ChangeSignal signal;
        RequestSink sink(session_.vocabulary(), options_.generation.stop, signal);
        const int32_t predict = options_.generation.predict;
        GenerationRequest request;
        request.prompt = std::move(*tokens);
        request.max_tokens = predict < 0 ? session_.context() : static_cast<uint32_t>(predict);
        request.sampler = std::move(*sampler);
        request.sink = &sink;
        request.reuse_prompt = true;  // the conversation so far
        const Result<RequestId> id = session_.engine().submit(std::move(request));
        if (!id)
            return std::unexpected(id.error());
        return print_until_end(*id, sink, signal);
    }

    Result<std::string> print_until_end(RequestId id, RequestSink& sink, ChangeSignal& signal) {
        size_t printed = 0;
        bool cancelled = false;
        for (bool finished = false; !finished;) {
            signal.wait(kTurn);
            finished = sink.finished();
            const std::string more = sink.text_from(printed);
            printed += more.size();
            std::cout << terminal_safe(more) << std::flush;
            if (interrupted() && !cancelled) {
                cancelled = true;
                session_.engine().cancel(id);
            }
        }
        RequestOutcome outcome = sink.outcome();
        std::cout << (outcome.reason == FinishReason::kCancelled ? " [stopped]\n" : "\n")
                  << std::flush;
        if (cancelled)
            clear_interrupt();
        if (outcome.error)
            return std::unexpected(*outcome.error);
        return std::move(outcome.text);
    }

    const RunOptions& options_;
    Session& session_;
    ChatTemplate chat_template_;
    std::vector<ChatMessage> messages_;
};

}  // namespace

Result<bool> chat_loop(const RunOptions& options, Session& session) {
    Result<ChatTemplate> chat_template = open_chat_template(session.vocabulary());
    if (!chat_template)
        return std::unexpected(chat_template.error());
    if (chat_template->is_fallback())
        print_notice("the model has no chat template; ChatML is used");
    if (!options.output.quiet)
        std::cout << "/reset starts a new conversation, /exit or Ctrl-C ends. Ctrl-C stops an "
                     "answer.\n";
    Conversation conversation(options, session, std::move(*chat_template));
    for (std::string line; !interrupted();) {
        std::cout << "> " << std::flush;
        if (!std::getline(std::cin, line))
            break;
        if (line == "/exit")
            return false;
        if (line == "/reset") {
            conversation.reset();
        } else if (!line.empty()) {
            if (Status status = conversation.answer(line); !status)
                print_error(status.error());
        }
    }
    std::cout << "\n";
    return interrupted();
}

}  // namespace bevy
