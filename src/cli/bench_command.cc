// bevy bench: how fast settings are on this machine, side by side.
//
// All settings are measured once, one after the other, then all again: what changes on the machine
// meanwhile changes it for all of them.
#include <chrono>
#include <format>
#include <set>
#include <thread>
#include <utility>

#include "cli/bench_report.h"
#include "cli/bench_run.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/opened_model.h"
#include "cli/probe.h"
#include "cli/prompts.h"
#include "cli/report.h"

namespace bevy {
namespace {

Result<BenchLoad> make_load(const BenchOptions& options, const OpenedModel& model) {
    Result<std::unique_ptr<LlamaVocabulary>> vocabulary = open_vocabulary(model);
    if (!vocabulary)
        return std::unexpected(vocabulary.error());
    BenchLoad load{.prompts = {}, .tokens = options.tokens, .warmup = options.warmup};
    if (options.prompts_file.empty()) {
        load.prompts = random_prompts(**vocabulary, options.prompt_tokens);
        return load;
    }
    GenerationOptions generation;
    generation.prompts_file = options.prompts_file;
    Result<std::vector<std::string>> prompts = collect_prompts(generation);
    if (!prompts)
        return std::unexpected(prompts.error());
    for (const std::string& prompt : *prompts) {
        Result<std::vector<TokenId>> tokens = encode_plain(**vocabulary, prompt);
        if (!tokens)
            return std::unexpected(tokens.error());
        load.prompts.push_back(std::move(*tokens));
    }
    return load;
}

BenchSweep plan_sweep(const BenchOptions& options, const OpenedModel& model,
                      const BenchLoad& load) {
    BenchSweep sweep;
    sweep.model = options.session.model;
    sweep.model_bytes = model.resident_bytes + model.experts.table.total_bytes();
    sweep.processor = processor_name();
    sweep.cores = std::thread::hardware_concurrency();
    sweep.started = std::format(
        "{:%FT%TZ}", std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now()));
    for (const std::vector<TokenId>& prompt : load.prompts)
        sweep.prompt_tokens_max =
            std::max(sweep.prompt_tokens_max, static_cast<uint32_t>(prompt.size()));
    sweep.tokens = load.tokens;
    sweep.warmup = load.warmup;
    for (const uint32_t parallel : options.parallel) {
        for (const CacheSize& cache : options.caches) {
            for (const std::string& eviction : options.evictions) {
                for (const std::string& policy : options.policies)
                    sweep.settings.push_back({policy, eviction, parallel, cache, {}});
            }
        }
    }
    return sweep;
}

SessionOptions session_options(const BenchOptions& options, const BenchSetting& setting,
                               const BenchLoad& load) {
    SessionOptions session = options.session;
    session.policy = setting.policy;
    session.eviction = setting.eviction;
    session.parallel = setting.parallel;
    session.expert_cache = setting.cache;
    if (session.context == 0)
        session.context = bench_context(load) * setting.parallel;
    return session;
}

std::string printed(const BenchSweep& sweep, BenchFormat format) {
    switch (format) {
        case BenchFormat::kCsv:
            return bench_csv(sweep);
        case BenchFormat::kJson:
            return bench_json(sweep);
        case BenchFormat::kJsonLines:
            return bench_jsonl(sweep);
        case BenchFormat::kMarkdown:
            break;
    }
    return bench_markdown(sweep);
}

// What the table does not repeat in every row.
std::string headline(const BenchSweep& sweep, const BenchOptions& options) {
    return std::format(
        "{}, {}; {}, {} cores; {} tokens per request after {} of warm-up, prompts of up to {}; "
        "median of {}, all outputs the same\n\n",
        sweep.model, format_bytes(sweep.model_bytes), sweep.processor, sweep.cores, sweep.tokens,
        sweep.warmup, sweep.prompt_tokens_max, options.repetitions);
}

class Bench {
public:
    Bench(const BenchOptions& options, OpenedModel model, BenchLoad load)
        : options_(options),
          model_(std::move(model)),
          load_(std::move(load)),
          sweep_(plan_sweep(options, model_, load_)) {}

    Status run() {
        ProgressLine progress(stderr, "measuring", options_.quiet, ProgressLine::Unit::kCount);
        const size_t total = sweep_.settings.size() * options_.repetitions;
        size_t done = 0;
        for (uint32_t repetition = 0; repetition < options_.repetitions; repetition++) {
            for (BenchSetting& setting : sweep_.settings) {
                if (interrupted())
                    return {};
                progress.update(done++, total);
                if (Status status = measure(setting); !status)
                    return interrupted() ? Status() : status;
            }
        }
        return {};
    }

    const BenchSweep& sweep() const { return sweep_; }

private:
    Status measure(BenchSetting& setting) {
        std::this_thread::sleep_for(std::chrono::seconds(options_.delay_seconds));
        SessionEvents events;
        events.notice = [&](const std::string& message) {
            if (!options_.quiet && notices_.insert(message).second)
                print_notice(message);
        };
        Result<BenchResult> result =
            run_bench(model_, session_options(options_, setting, load_), load_, events);
        if (!result)
            return fail(result.error().code,
                        std::format("policy {}, eviction {}, -np {}: {}", setting.policy,
                                    setting.eviction, setting.parallel, result.error().message),
                        result.error().hint);
        setting.results.push_back(std::move(*result));
        return {};
    }

    const BenchOptions& options_;
    const OpenedModel model_;
    const BenchLoad load_;
    BenchSweep sweep_;
    std::set<std::string> notices_;  // those that the user has seen
};

}  // namespace

int bench_command(const BenchOptions& options) {
    Result<OpenedModel> model = open_model(options.session.model);
    if (!model)
        return fail_with(model.error());
    Result<BenchLoad> load = make_load(options, *model);
    if (!load)
        return fail_with(load.error());
    // Found out now, not after an hour of measuring.
    if (!options.plot.empty()) {
        if (Status status = write_text_file(options.plot, ""); !status)
            return fail_with(status.error());
    }
    Bench bench(options, std::move(*model), std::move(*load));
    const Status ran = bench.run();
    // What is done is worth showing, even if the rest failed or was interrupted.
    const std::string text = printed(bench.sweep(), options.format);
    const std::optional<std::string> different = different_outputs(bench.sweep());
    const bool with_headline =
        options.format == BenchFormat::kMarkdown && !options.quiet && !text.empty() && !different;
    const bool shown = print_output(with_headline ? headline(bench.sweep(), options) + text : text);
    const Status plotted =
        options.plot.empty() ? Status() : write_text_file(options.plot, bench_plot(bench.sweep()));
    if (!ran)
        print_error(ran.error());
    if (!plotted)
        print_error(plotted.error());
    if (different)
        print_usage_error("outputs differ between runs: " + *different,
                          "that is a fault of Bevy; please report it with the command line");
    if (interrupted())
        return kExitInterrupted;
    if (!ran)
        return exit_code_of(ran.error());
    return plotted && shown && !different ? kExitOk : kExitFailure;
}

}  // namespace bevy
