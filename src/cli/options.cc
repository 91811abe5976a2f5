#include "cli/options.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>

#include "base/units.h"
#include "cli/option_declarations.h"
#include "compute/arch/arch.h"
#include "core/eviction/registry.h"
#include "core/policy/registry.h"
#include "core/read_order/registry.h"
#include "storage/reader_registry.h"

namespace bevy {

using namespace option_group;

void declare_model(CLI::App& app, SessionOptions& o) {
    option(app, kModel, "-m,--model", o.model, "model file (GGUF), any shard of a split one")
        ->required()
        ->type_name("FILE");
}

namespace {

// Guesses from further away are worth nothing, and tables of predictors grow with it.
constexpr uint32_t kLookaheadMax = 16;

CLI::Validator policy_name() {
    return CLI::Validator(
        [](std::string& text) -> std::string {
            Result<PolicyName> name = parse_policy_name(text);
            return name ? "" : name.error().message + "; " + name.error().hint;
        },
        "");  // the help names them
}

}  // namespace

std::string policy_help() {
    // Without those that only a simulation can have.
    std::string predictor_names;
    for (const PredictorRow& row : predictors()) {
        if (!row.needs_truth)
            predictor_names += (predictor_names.empty() ? "" : ", ") + std::string(row.name);
    }
    return with_choices("what is computed next", schedule_policies()) +
           "; each also with +prefetch-PREDICTOR: " + predictor_names +
           "; with @N behind it, it guesses while at most N requests run";
}

void declare_machine(CLI::App& app, SessionOptions& o) {
    number(app, kModel, "-t,--threads", o.threads, 0u, 1024u, "compute threads; 0: one per core");
    number(
        app, kGeneration, "-c,--ctx-size", o.context, 0u, kTokensMax,
        "tokens of context, shared equally by the -np requests; 0: the model's for each, at most "
        "4096");
    number(app, kGeneration, "-b,--batch-size", o.batch, 1u, 1u << 20,
           "prompt tokens of all requests that may be computed at once");
    number(app, kGeneration, "--ubatch-size", o.ubatch, 1u, 8192u,
           "prompt tokens of one request computed at once; other values round differently (short: "
           "-ub)");
    parsed(app, kMemory, "--memory", "budget for everything, for example 8GiB",
           "what the machine leaves", [&o](const std::string& text) -> Status {
               Result<uint64_t> bytes = parse_bytes(text);
               if (!bytes)
                   return std::unexpected(bytes.error());
               if (*bytes == 0)
                   return fail(ErrorCode::kInvalidArgument, "a budget of zero bytes");
               o.memory_bytes = *bytes;
               return {};
           });
    static constexpr std::array kCacheTypes = {"f32", "f16", "bf16", "q8_0"};
    option(app, kMemory, "--cache-type-k", o.cache_type_k, "type of the K cache (short: -ctk)")
        ->check(CLI::IsMember(std::vector<std::string>(kCacheTypes.begin(), kCacheTypes.end())));
    option(app, kMemory, "--cache-type-v", o.cache_type_v, "type of the V cache (short: -ctv)")
        ->check(CLI::IsMember(std::vector<std::string>(kCacheTypes.begin(), kCacheTypes.end())));
    option(app, kMemory, "--read-order", o.read_order,
           with_choices("which missing expert is read first", read_orders()))
        ->type_name("NAME")
        ->check(one_of(read_orders()));
    number(app, kMemory, "--lookahead", o.lookahead, 1u, kLookaheadMax,
           "layers that a predictor looks ahead");
    number(app, kMemory, "--prefetch-reads", o.prefetch_reads, 1u, 1024u,
           "guessed experts being read at once, while no other read is wanted");
}

void declare_session(CLI::App& app, SessionOptions& o) {
    number(app, kGeneration, "--parallel", o.parallel, 1u, 1024u,
           "requests that run at once (short: -np)");
    parsed(app, kMemory, "--expert-cache", "memory for experts, for example 4GiB or 40%",
           "what the budget leaves", [&o](const std::string& text) -> Status {
               Result<CacheSize> size = parse_cache_size(text);
               if (!size)
                   return std::unexpected(size.error());
               o.expert_cache = *size;
               return {};
           });
    option(app, kMemory, "--policy", o.policy, policy_help())
        ->type_name("NAME")
        ->check(policy_name());
    option(app, kMemory, "--eviction", o.eviction,
           with_choices("which expert leaves the cache", eviction_policies()))
        ->type_name("NAME")
        ->check(one_of(eviction_policies()));
    declare_machine(app, o);
}

void declare_storage(CLI::App& app, SessionOptions& o) {
    choice(app, kStorage, "--io", o.link.io, reader_rows(), "how model files are read");
    choice(app, kStorage, "--direct-io", o.link.direct, std::span<const DirectIoRow>(kDirectIoRows),
           "whether reads bypass the page cache");
    number(app, kStorage, "--reads", o.link.transfers_inflight_max, 1u, 1024u,
           "experts being read at once");
}

namespace {

void declare_generation(CLI::App& app, RunOptions& o) {
    GenerationOptions& g = o.generation;
    app.add_option("-p,--prompt", g.prompts, "prompt; give it again for more requests")
        ->group(kGeneration)
        ->allow_extra_args(false)
        ->type_name("TEXT");
    app.add_option("--prompts", g.prompts_file, "file with one prompt per line; -: standard input")
        ->group(kGeneration)
        ->type_name("FILE");
    number(app, kGeneration, "-n,--predict,--n-predict", g.predict, -1,
           static_cast<int32_t>(kTokensMax), "tokens to generate per request; -1: to the context");
    flag(app, kGeneration, "--chat", g.chat, "prompts are user messages, in the model's template");
    app.add_option("--system", g.system, "system message; implies --chat")
        ->group(kGeneration)
        ->type_name("TEXT");
    app.add_option("--stop", g.stop, "end the text before this one; may be given again")
        ->group(kGeneration)
        ->allow_extra_args(false)
        ->type_name("TEXT");
    flag(app, kGeneration, "--ignore-eos", o.sampling.ignore_end_of_generation,
         "never choose a token that ends the text");
}

}  // namespace

void declare_sampling(CLI::App& app, SamplingParams& p) {
    const auto real = [&](const char* flags, float& field, float low, float high,
                          const char* help) {
        number(app, kSampling, flags, field, low, high, help);
    };
    const auto whole = [&](const char* flags, int32_t& field, int32_t low, const char* help) {
        number(app, kSampling, flags, field, low, 1'000'000'000, help);
    };
    number(app, kSampling, "-s,--seed", p.seed, 0u, std::numeric_limits<uint32_t>::max(),
           "seed; request i gets seed + i; 4294967295: a random one");
    real("--temp", p.temperature, -1000, 1000, "temperature; 0 and below: greedy");
    whole("--top-k", p.top_k, std::numeric_limits<int32_t>::min(),
          "keep the k most likely tokens; 0: all");
    real("--top-p", p.top_p, 0, 1, "keep the most likely tokens up to this sum; 1: off");
    real("--min-p", p.min_p, 0, 1, "drop tokens less likely than this part of the best; 0: off");
    real("--typical", p.typical_p, 0, 1, "keep locally typical tokens up to this sum; 1: off");
    real("--top-nsigma", p.top_n_sigma, -1000, 1000,
         "keep logits within n standard deviations of the best; -1: off");
    real("--xtc-probability", p.xtc_probability, 0, 1, "how often XTC removes tokens; 0: off");
    real("--xtc-threshold", p.xtc_threshold, 0, 1, "XTC removes all but the last above this");
    whole("--repeat-last-n", p.repeat_last_n, -1, "tokens that penalties count; -1: context");
    real("--repeat-penalty", p.repeat_penalty, 0.001f, 1000, "divides repeated logits; 1: off");
    real("--presence-penalty", p.presence_penalty, -1000, 1000, "subtracted once; 0: off");
    real("--frequency-penalty", p.frequency_penalty, -1000, 1000, "subtracted each time; 0: off");
    real("--dry-multiplier", p.dry_multiplier, 0, 1000, "strength of DRY; 0: off");
    real("--dry-base", p.dry_base, 0, 1000, "growth of DRY with the length of a repetition");
    whole("--dry-allowed-length", p.dry_allowed_length, 0, "longest repetition without penalty");
    whole("--dry-penalty-last-n", p.dry_penalty_last_n, -1, "tokens that DRY sees; -1: context");
    app.add_option("--grammar", p.grammar, "GBNF grammar that the text must follow")
        ->group(kSampling)
        ->type_name("TEXT");
}

void declare_run_options(CLI::App& app, RunOptions& o) {
    declare_model(app, o.session);
    declare_session(app, o.session);
    declare_generation(app, o);
    declare_sampling(app, o.sampling);
    declare_storage(app, o.session);
    flag(app, kOutput, "--jsonl", o.output.jsonl, "one JSON object per finished request");
    app.add_option("--trace", o.session.trace, "write a timeline for Perfetto or chrome://tracing")
        ->group(kOutput)
        ->type_name("FILE");
    app.add_option("--record-routes", o.session.record_routes,
                   "write which experts each generated token used, for bevy sim --trace")
        ->group(kOutput)
        ->type_name("FILE");
    CLI::Option* verbose =
        app.add_flag("-v,--verbose", o.output.verbose, "show plan and notices")->group(kOutput);
    app.add_flag("-q,--quiet", o.output.quiet, "texts and errors only")
        ->group(kOutput)
        ->excludes(verbose);
}

void declare_inspect_options(CLI::App& app, InspectOptions& o) {
    declare_model(app, o.session);
    declare_session(app, o.session);
    declare_storage(app, o.session);
    flag(app, kOutput, "--memory-plan", o.memory_only, "show the memory plan only");
    flag(app, kOutput, "--json", o.json, "one JSON object");
    flag(app, kOutput, "--no-probe", o.no_probe, "measure no bandwidths");
}

std::vector<std::string> expand_short_names(int argc, const char* const* argv) {
    static constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kNames = {{
        {"-np", "--parallel"},
        {"-ctk", "--cache-type-k"},
        {"-ctv", "--cache-type-v"},
        {"-ub", "--ubatch-size"},
        {"-to", "--timeout"},
    }};
    static constexpr std::array<std::string_view, 6> kTakeText = {"-p",     "--prompt",  "--system",
                                                                  "--stop", "--grammar", "-m"};
    std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
    bool is_text = false;  // the argument is the value of the one before
    for (std::string& argument : arguments) {
        if (argument == "--" && !is_text)
            break;
        if (std::exchange(is_text, !is_text && std::ranges::contains(kTakeText, argument)))
            continue;
        for (const auto& [short_name, long_name] : kNames) {
            if (argument == short_name)
                argument = long_name;
        }
    }
    return arguments;
}

}  // namespace bevy
