// bevy run: many prompts at once, or a chat.
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <utility>

#include "cli/chat.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/prompts.h"
#include "cli/report.h"
#include "cli/run_view.h"
#include "cli/session.h"
#include "cli/terminal.h"
#include "text/llama_sampler_chain.h"

namespace bevy {
namespace {

constexpr Duration kTurn = milliseconds(50);

// Submits the requests as there is room, tells the view, and ends them all on Ctrl-C.
class BatchRun {
public:
    BatchRun(const RunOptions& options, Session& session, RunView& view)
        : options_(options), session_(session), view_(view) {}
    // No sink may be left to the engine.
    ~BatchRun() { cancel_all(); }

    void add(std::string prompt, Result<std::vector<TokenId>> tokens) {
        RunRequest request;
        request.index = static_cast<uint32_t>(requests_.size()) + 1;
        request.prompt = std::move(prompt);
        if (tokens)
            request.tokens_prompt = static_cast<uint32_t>(tokens->size());
        else
            request.refused = tokens.error();
        requests_.push_back(std::move(request));
        tokens_.push_back(tokens ? std::move(*tokens) : std::vector<TokenId>());
    }

    // True: every request ended without an error.
    bool run() {
        bool stopping = false;
        while (true) {
            if (!stopping && (interrupted() || !view_.output_works())) {
                stopping = true;
                cancel_all();
            }
            if (!stopping)
                submit_some();
            const bool done = report_finished(stopping);
            if (done)
                break;
            view_.update(requests_, session_.engine().snapshot());
            signal_.wait(kTurn);
        }
        return std::ranges::none_of(
            requests_, [](const RunRequest& r) { return outcome_of(r).error.has_value(); });
    }

private:
    void submit_some() {
        const size_t unfinished_max = size_t{2} * options_.session.parallel + 4;
        size_t unfinished = 0;
        for (size_t i = reported_below_; i < next_; ++i)
            unfinished += requests_[i].id.has_value() && !requests_[i].reported;
        for (; next_ < requests_.size() && unfinished < unfinished_max; ++next_) {
            RunRequest& request = requests_[next_];
            if (request.refused)
                continue;
            if (Status status = submit(request, std::move(tokens_[next_])); !status) {
                request.sink.reset();
                request.refused = status.error();
            } else {
                ++unfinished;
            }
        }
    }

    Status submit(RunRequest& request, std::vector<TokenId> tokens) {
        SamplingParams params = options_.sampling;
        if (params.seed != 0xFFFFFFFF)
            params.seed += request.index - 1;
        auto sampler = make_sampler(session_.vocabulary(), params, session_.context(), tokens);
        if (!sampler)
            return std::unexpected(sampler.error());
        request.sink =
            std::make_unique<RequestSink>(session_.vocabulary(), options_.generation.stop, signal_);
        const int32_t predict = options_.generation.predict;
        GenerationRequest generation;
        generation.prompt = std::move(tokens);
        generation.max_tokens = predict < 0 ? session_.context() : static_cast<uint32_t>(predict);
        generation.sampler = std::move(*sampler);
        generation.sink = request.sink.get();
        Result<RequestId> id = session_.engine().submit(std::move(generation));
        if (!id)
            return std::unexpected(id.error());
        request.id = *id;
        return {};
    }

    void cancel_all() {
        for (const RunRequest& request : requests_) {
            if (request.id && !request.sink->finished())
                session_.engine().cancel(*request.id);
        }
        for (const RunRequest& request : requests_) {
            while (request.id && !request.sink->finished())
                signal_.wait(kTurn);
        }
    }

    // True: nothing is left. When stopping, requests that never started end as cancelled.
    bool report_finished(bool stopping) {
        bool all = true;
        for (size_t i = reported_below_; i < requests_.size(); ++i) {
            RunRequest& request = requests_[i];
            const bool ended = request.refused || (request.id && request.sink->finished()) ||
                               (stopping && !request.id);
            if (ended && !request.reported) {
                request.reported = true;
                // Of requests that never ran because of Ctrl-C there is nothing to show.
                if (request.id || request.refused)
                    view_.finished(request);
            }
            all = all && request.reported;
        }
        while (reported_below_ < requests_.size() && requests_[reported_below_].reported)
            ++reported_below_;
        return all;
    }

    const RunOptions& options_;
    Session& session_;
    RunView& view_;
    ChangeSignal signal_;
    std::vector<RunRequest> requests_;
    std::vector<std::vector<TokenId>> tokens_;  // parallel to requests_, until submitted
    size_t next_ = 0;                           // the first that was not submitted
    size_t reported_below_ = 0;                 // all before are reported
};

std::unique_ptr<RunView> make_view(const OutputOptions& output) {
    if (output.jsonl)
        return make_jsonl_view(stdout);
    const ViewOptions options{.quiet = output.quiet, .colour = wants_colour(STDOUT_FILENO)};
    if (is_live_terminal(STDOUT_FILENO) && !output.quiet)
        return make_live_view(stdout, options);
    return make_plain_view(stdout, stderr, options);
}

Result<std::unique_ptr<Session>> open_session(const RunOptions& options) {
    const bool quiet = options.output.quiet;
    ProgressLine progress(stderr, "loading", quiet);
    SessionEvents events;
    events.notice = [&](const std::string& message) {
        if (!quiet)
            print_notice(message);
    };
    events.loading = [&](uint64_t done, uint64_t total) { progress.update(done, total); };
    return Session::open(options.session, events);
}

// The prompts' tokens; as messages where the user asked for chat.
Status add_prompts(const RunOptions& options, const Session& session,
                   const std::vector<std::string>& prompts, BatchRun& run) {
    const GenerationOptions& generation = options.generation;
    std::optional<ChatTemplate> chat_template;
    if (generation.chat || !generation.system.empty()) {
        Result<ChatTemplate> opened = open_chat_template(session.vocabulary());
        if (!opened)
            return std::unexpected(opened.error());
        if (opened->is_fallback() && !options.output.quiet)
            print_notice("the model has no chat template; ChatML is used");
        chat_template = std::move(*opened);
    }
    for (const std::string& prompt : prompts) {
        if (!chat_template) {
            run.add(prompt, encode_plain(session.vocabulary(), prompt));
            continue;
        }
        std::vector<ChatMessage> messages;
        if (!generation.system.empty())
            messages.push_back({"system", generation.system});
        messages.push_back({"user", prompt});
        run.add(prompt, encode_chat(session.vocabulary(), *chat_template, messages));
    }
    return {};
}

int finish(Session& session, const RunOptions& options, bool ok, bool was_interrupted) {
    const EngineStats stats = session.engine().snapshot().stats;
    const Status closed = session.close();
    if (!options.output.quiet)
        print_summary(stderr, stats);
    if (!closed)
        print_error(closed.error());
    if (was_interrupted)
        return kExitInterrupted;
    return ok && closed ? kExitOk : kExitFailure;
}

}  // namespace

int run_command(const RunOptions& options) {
    if (Status status = validate(options.sampling); !status) {
        print_error(status.error());
        return kExitUsage;
    }
    Result<std::vector<std::string>> prompts = collect_prompts(options.generation);
    if (!prompts) {
        print_error(prompts.error());
        return kExitFailure;
    }
    const bool chat = prompts->empty();
    if (chat && isatty(STDIN_FILENO) != 1) {
        print_usage_error("no prompt given, and standard input is not a terminal to chat on",
                          "give -p TEXT, or --prompts - to read prompts from standard input");
        return kExitUsage;
    }
    Result<std::unique_ptr<Session>> session = open_session(options);
    if (!session) {
        print_error(session.error());
        return kExitFailure;
    }
    if (options.output.verbose)
        print_memory_plan(stderr, (*session)->plan());
    if (chat) {
        const Result<bool> quit_by_signal = chat_loop(options, **session);
        if (!quit_by_signal) {
            print_error(quit_by_signal.error());
            return kExitFailure;
        }
        return finish(**session, options, true, *quit_by_signal);
    }
    bool ok = true;
    {
        const std::unique_ptr<RunView> view = make_view(options.output);
        BatchRun run(options, **session, *view);
        Status added = add_prompts(options, **session, *prompts, run);
        ok = added && run.run();
        view->close();
        if (!added)
            print_error(added.error());
        if (!view->output_works()) {
            print_usage_error("the output could not be written",
                              "is its disk full, or has its reader gone?");
            ok = false;
        }
    }
    return finish(**session, options, ok, interrupted());
}

}  // namespace bevy
