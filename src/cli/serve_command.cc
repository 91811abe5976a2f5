// bevy serve: an HTTP server for one model.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <format>
#include <map>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/prompts.h"
#include "cli/report.h"
#include "cli/serve_options.h"
#include "cli/session.h"
#include "server/server.h"

namespace bevy {
namespace {

constexpr auto kTurn = std::chrono::milliseconds(50);

Result<ChatTemplate> choose_template(const ServeOptions& options,
                                     const LlamaVocabulary& vocabulary) {
    if (options.chat_template.empty())
        return open_chat_template(vocabulary);
    return ChatTemplate::create({.source = options.chat_template,
                                 .bos_text = vocabulary.bos_text(),
                                 .eos_text = vocabulary.eos_text(),
                                 .tokenizer_adds_bos = vocabulary.adds_bos(),
                                 .tokenizer_adds_eos = vocabulary.adds_eos()});
}

ModelFacts facts_of(const OpenedModel& model, const MemoryPlan& plan) {
    ModelFacts facts;
    facts.path = model.file.paths().front();
    std::map<int32_t, uint64_t> bytes_by_type;
    for (const TensorInfo& tensor : model.file.tensors()) {
        uint64_t elements = 1;
        for (const int64_t dim : tensor.dims)
            elements *= static_cast<uint64_t>(dim);
        facts.parameters += elements;
        facts.bytes += tensor.bytes;
        bytes_by_type[tensor.type] += tensor.bytes;
    }
    uint64_t most = 0;
    for (const auto& [type, bytes] : bytes_by_type) {
        if (bytes > most) {
            most = bytes;
            facts.type = tensor_type_name(type);
        }
    }
    facts.context_train = model.shape.context_train;
    facts.embedding = model.shape.embedding;
    facts.experts = model.experts.table.expert_count();
    facts.expert_slots = plan.slots;
    return facts;
}

// A model being opened on a thread of its own, so that signals are heard meanwhile.
class Loading {
public:
    Loading(const ServeOptions& options, Server& server)
        : thread_([this, &options, &server] {
              SessionEvents events;
              events.notice = [&](const std::string& message) {
                  if (!options.output.quiet)
                      print_notice(message);
              };
              events.loading = [&](uint64_t done, uint64_t total) { server.progress(done, total); };
              result_ = Session::open(options.session, events);
              done_ = true;
          }) {}

    // Nothing: a signal came first. Then the process is to end without taking anything down.
    std::optional<Result<std::unique_ptr<Session>>> wait() {
        while (!done_) {
            if (interrupted())
                return std::nullopt;
            std::this_thread::sleep_for(kTurn);
        }
        thread_.join();
        return std::move(result_);
    }

private:
    std::optional<Result<std::unique_ptr<Session>>> result_;
    std::atomic<bool> done_ = false;
    std::thread thread_;
};

void say(const ServeOptions& options, const std::string& message) {
    if (!options.output.quiet)
        std::fprintf(stderr, "bevy: %s\n", message.c_str());
}

// Until the first signal; then no new work, and the running one gets its time.
void serve_until_interrupted(const ServeOptions& options, Server& server) {
    while (!interrupted())
        std::this_thread::sleep_for(kTurn);
    server.drain();
    if (server.busy() == 0)
        return;
    say(options, std::format("ending: {} requests have up to {} seconds; a second signal ends "
                             "at once",
                             server.busy(), options.drain_seconds));
    const SystemClock clock;
    const Instant deadline = clock.now() + milliseconds(int64_t{1000} * options.drain_seconds);
    while (server.busy() > 0 && clock.now() < deadline)
        std::this_thread::sleep_for(kTurn);
}

int finish(const ServeOptions& options, Server& server, Session& session) {
    const EngineStats stats = session.engine().snapshot().stats;
    // Ends what still runs, which lets every handler return.
    session.engine().stop();
    server.close();
    const Status closed = session.close();
    if (options.output.verbose)
        print_summary(stderr, stats);
    if (!closed) {
        print_error(closed.error());
        return kExitFailure;
    }
    return kExitOk;
}

int run_session(const ServeOptions& options, Server& server, Session& session) {
    Result<ChatTemplate> chat_template = choose_template(options, session.vocabulary());
    if (!chat_template) {
        print_error(chat_template.error());
        return kExitFailure;
    }
    if (options.chat_template.empty() && chat_template->is_fallback() && !options.output.quiet)
        print_notice("the model has no chat template; ChatML is used");
    if (options.output.verbose)
        print_memory_plan(stderr, session.plan());
    const ServedModel model = {.facts = facts_of(session.model(), session.plan()),
                               .vocabulary = &session.vocabulary(),
                               .chat_template = &*chat_template,
                               .engine = &session.engine(),
                               .context = session.context(),
                               .parallel = options.session.parallel};
    server.serve(model);
    say(options, "ready: " + server.url());
    serve_until_interrupted(options, server);
    return finish(options, server, session);
}

}  // namespace

int serve_command(ServeOptions& options) {
    if (Status status = complete(options); !status) {
        print_error(status.error());
        return kExitUsage;
    }
    if (options.output.verbose)
        options.server.log = [](const std::string& line) {
            std::fprintf(stderr, "%s\n", line.c_str());
        };
    Result<std::unique_ptr<Server>> server = Server::open(options.server, options.session.parallel);
    if (!server) {
        print_error(server.error());
        return kExitFailure;
    }
    say(options, "listening on " + (*server)->url() + ", loading the model");
    Loading loading(options, **server);
    std::optional<Result<std::unique_ptr<Session>>> session = loading.wait();
    if (!session)
        std::_Exit(kExitOk);  // the loading thread can't be stopped, and holds nothing of value
    if (!*session) {
        print_error((*session).error());
        (*server)->close();
        return kExitFailure;
    }
    return run_session(options, **server, ***session);
}

}  // namespace bevy
