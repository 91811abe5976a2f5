#include "cli/sim_options.h"

#include <CLI/CLI.hpp>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/registry.h"
#include "cli/option_lists.h"
#include "cli/profiles.h"
#include "core/eviction/registry.h"
#include "core/policy/registry.h"
#include "core/predictor/registry.h"
#include "core/read_order/registry.h"
#include "sim/known_future_eviction.h"

namespace bevy {
namespace {

constexpr const char* kRoutes = "Model and routes";
constexpr const char* kSweep = "What is compared (lists: every combination)";
constexpr const char* kLoad = "Load";
constexpr const char* kOutput = "Output";

constexpr uint64_t kSeedsMax = 1000;

struct FormatRow {
    std::string_view name;
    SimFormat value;
};
constexpr std::array kFormats = {FormatRow{"table", SimFormat::kTable},
                                 FormatRow{"csv", SimFormat::kCsv},
                                 FormatRow{"json", SimFormat::kJson}};

Status add_cache_share(std::string_view text, std::vector<CacheSize>& field) {
    if (Status status = add_cache(text, field); !status)
        return status;
    if (field.back().kind == CacheSize::Kind::kRest)
        return fail(ErrorCode::kInvalidArgument, "a simulated machine has no rest of memory",
                    "give a share of all experts (50%) or a size (12GiB)");
    return {};
}

// "3" or "1-4".
Status add_seeds(std::string_view text, std::vector<uint64_t>& field) {
    const size_t dash = text.find('-');
    const Result<uint64_t> first = parse_number(text.substr(0, dash), 0, UINT32_MAX);
    if (!first)
        return std::unexpected(first.error());
    Result<uint64_t> last = first;
    if (dash != std::string_view::npos)
        last = parse_number(text.substr(dash + 1), *first, *first + kSeedsMax - 1);
    if (!last)
        return std::unexpected(last.error());
    for (uint64_t seed = *first; seed <= *last; seed++)
        field.push_back(seed);
    return {};
}

Status parse_arrivals(std::string_view text, double& per_second) {
    constexpr std::string_view kPoisson = "poisson:";
    if (text == "saturated") {
        per_second = 0;
        return {};
    }
    if (text.starts_with(kPoisson)) {
        const std::string_view rate = text.substr(kPoisson.size());
        const auto [end, error] =
            std::from_chars(rate.data(), rate.data() + rate.size(), per_second);
        if (error == std::errc{} && end == rate.data() + rate.size() && per_second >= 1e-4 &&
            per_second <= 1e6)
            return {};
    }
    return fail(ErrorCode::kInvalidArgument,
                "'" + std::string(text) + "' says not when requests arrive",
                "write saturated, or poisson:RATE with requests per second, 0.0001 .. 1000000");
}

void declare_routes(CLI::App& app, SimOptions& o) {
    app.add_option("--trace", o.trace,
                   "recorded routes (.rtrace, from bevy run --record-routes); without: generated")
        ->group(kRoutes)
        ->type_name("FILE");
    app.add_option("-m,--model", o.model,
                   "shape and sizes; a JSON file or one of: " + joined(model_profile_names()))
        ->group(kRoutes)
        ->type_name("NAME")
        ->default_str("that of the routes");
    parsed_option(app, kRoutes, "--drop", "N",
                  "tokens left out at the beginning of every request of a trace", "16",
                  [&o](const std::string& text) -> Status {
                      const Result<uint64_t> value = parse_number(text, 0, 1'000'000'000);
                      if (!value)
                          return std::unexpected(value.error());
                      o.drop = static_cast<uint32_t>(*value);
                      return {};
                  });
}

void declare_sweep(CLI::App& app, SimOptions& o) {
    list(app, kSweep, "--hardware", "NAMES",
         "machines; JSON files or some of: " + joined(hardware_profile_names()), "", o.hardware,
         add_name);
    app.get_option("--hardware")->required();
    list(app, kSweep, "--policy", "NAMES",
         "what is computed next: " + registry_names(schedule_policies()) +
             "; each also with +prefetch-PREDICTOR: " + registry_names(predictors()),
         joined(o.policies), o.policies, add_name);
    list(app, kSweep, "--eviction", "NAMES",
         "which expert leaves the cache: " + registry_names(eviction_policies()) + ", " +
             std::string(kKnownFutureEviction) + " (knows the routes to come)",
         joined(o.evictions), o.evictions, add_name);
    list(app, kSweep, "--parallel", "NUMBERS", "requests that run at once (short: -np)", "8",
         o.parallel, add_parallel);
    list(app, kSweep, "--cache", "SIZES", "memory for experts, for example 10%,25%,4GiB", "50%",
         o.caches, add_cache_share);
    list(app, kSweep, "--seeds", "SEEDS", "orders of the requests, for example 1-4 or 1,5", "1",
         o.seeds, add_seeds);
}

void declare_load(CLI::App& app, SimOptions& o) {
    const auto number = [&](const std::string& flags, auto& field, uint64_t low, uint64_t high,
                            const char* help) {
        parsed_option(app, kLoad, flags, "N", help, std::to_string(field),
                      [&field, low, high](const std::string& text) -> Status {
                          const Result<uint64_t> value = parse_number(text, low, high);
                          if (!value)
                              return std::unexpected(value.error());
                          field = static_cast<std::remove_reference_t<decltype(field)>>(*value);
                          return {};
                      });
    };
    number("-n,--tokens", o.tokens, 1, 1'000'000'000, "generated tokens that are measured");
    number("--warmup", o.warmup, 0, 1'000'000'000, "generated tokens before that");
    number("--prompt-tokens", o.prompt_tokens, 1, 1'000'000,
           "of a request's tokens, so many are its prompt");
    number("--request-tokens", o.request_tokens, 0, 1'000'000'000,
           "most tokens of a request, prompt and reply; 0: as in the routes");
    app.add_option("--read-order", o.read_order,
                   "which missing expert is read first: " + registry_names(read_orders()))
        ->group(kSweep)
        ->type_name("NAME")
        ->capture_default_str();
    number("--lookahead", o.lookahead, 1, 16, "layers that a predictor looks ahead");
    number("--prefetch-reads", o.prefetch_reads, 1, 1024,
           "guessed experts being read at once, while no other read is wanted");
    number("--guess-right-resident", o.guess_right_resident, 0, 100,
           "percent of the experts in memory that next-gate guesses right");
    number("--guess-right-missing", o.guess_right_missing, 0, 100,
           "the same of those that are not");
    parsed_option(
        app, kLoad, "--arrivals", "WHEN",
        "when requests arrive: saturated, or poisson:RATE with requests per second", "saturated",
        [&o](const std::string& text) { return parse_arrivals(text, o.arrivals_per_second); });
}

}  // namespace

void declare_sim_options(CLI::App& app, SimOptions& o) {
    declare_routes(app, o);
    declare_sweep(app, o);
    declare_load(app, o);
    parsed_option(
        app, kOutput, "-o,--output", "NAME",
        "how results are printed: " + registry_names(std::span<const FormatRow>(kFormats)), "table",
        [&o](const std::string& text) -> Status {
            const Result<const FormatRow*> row =
                registry_find(std::span<const FormatRow>(kFormats), "output", text);
            if (!row)
                return std::unexpected(row.error());
            o.format = (*row)->value;
            return {};
        });
    app.add_option("--plot", o.plot, "draw the throughput as an SVG picture")
        ->group(kOutput)
        ->type_name("FILE");
    parsed_option(app, kOutput, "-j,--jobs", "N",
                  "experiments at a time; results do not depend on it; 0: one per core", "0",
                  [&o](const std::string& text) -> Status {
                      const Result<uint64_t> value = parse_number(text, 0, 1024);
                      if (!value)
                          return std::unexpected(value.error());
                      o.jobs = static_cast<uint32_t>(*value);
                      return {};
                  });
    app.add_flag("-q,--quiet", o.quiet, "results and errors only")->group(kOutput);
}

}  // namespace bevy
