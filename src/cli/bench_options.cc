#include "cli/bench_options.h"

#include <array>

#include "base/registry.h"
#include "cli/option_declarations.h"
#include "cli/option_lists.h"
#include "core/eviction/registry.h"
#include "core/policy/registry.h"

namespace bevy {

using namespace option_group;

namespace {

constexpr const char* kSweep = "What is compared (lists: every combination)";
constexpr const char* kLoad = "Load";

struct FormatRow {
    std::string_view name;
    BenchFormat value;
};
constexpr std::array kFormats = {
    FormatRow{"md", BenchFormat::kMarkdown}, FormatRow{"csv", BenchFormat::kCsv},
    FormatRow{"json", BenchFormat::kJson}, FormatRow{"jsonl", BenchFormat::kJsonLines}};

Status add_policy(std::string_view text, std::vector<std::string>& field) {
    if (Result<PolicyName> name = parse_policy_name(text); !name)
        return std::unexpected(name.error());
    field.emplace_back(text);
    return {};
}

Status add_eviction(std::string_view text, std::vector<std::string>& field) {
    if (auto row = registry_find(eviction_policies(), "eviction", text); !row)
        return std::unexpected(row.error());
    field.emplace_back(text);
    return {};
}

void declare_sweep(CLI::App& app, BenchOptions& o) {
    list(app, kSweep, "--policy", "NAMES", policy_help(), joined(o.policies), o.policies,
         add_policy);
    list(app, kSweep, "--eviction", "NAMES",
         with_choices("which expert leaves the cache", eviction_policies()), joined(o.evictions),
         o.evictions, add_eviction);
    list(app, kSweep, "--parallel", "NUMBERS", "requests that run at once (short: -np)", "4",
         o.parallel, add_parallel);
    list(app, kSweep, "--expert-cache", "SIZES",
         "memory for experts, for example 25%,50% or 4GiB; rest: what the budget leaves", "rest",
         o.caches, add_cache);
}

void declare_load(CLI::App& app, BenchOptions& o) {
    app.add_option("--prompts", o.prompts_file,
                   "file with one prompt per line, used in turn; without: random tokens")
        ->group(kLoad)
        ->type_name("FILE");
    number(app, kLoad, "-p,--n-prompt", o.prompt_tokens, 1u, kTokensMax,
           "tokens of a random prompt");
    number(app, kLoad, "-n,--n-gen", o.tokens, 1u, kTokensMax,
           "generated tokens that are measured, per request on average");
    number(app, kLoad, "--warmup", o.warmup, 1u, kTokensMax,
           "generated tokens before that, per request on average");
    number(app, kLoad, "-r,--repetitions", o.repetitions, 1u, 1000u,
           "how often all settings are measured, one after the other");
    number(app, kLoad, "--delay", o.delay_seconds, 0u, 3600u, "seconds of rest before each run");
}

}  // namespace

void declare_bench_options(CLI::App& app, BenchOptions& o) {
    declare_model(app, o.session);
    declare_machine(app, o.session);
    declare_sweep(app, o);
    declare_load(app, o);
    declare_storage(app, o.session);
    choice(app, kOutput, "-o,--output", o.format, std::span<const FormatRow>(kFormats),
           "how results are printed");
    app.add_option("--plot", o.plot, "draw the throughput as an SVG picture")
        ->group(kOutput)
        ->type_name("FILE");
    flag(app, kOutput, "-q,--quiet", o.quiet, "results and errors only");
}

}  // namespace bevy
