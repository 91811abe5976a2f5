// bevy make-model replay: a model that replays recorded or generated routes.
#include <cstdio>
#include <format>
#include <utility>

#include "cli/command.h"
#include "cli/model_writing.h"
#include "cli/profiles.h"
#include "model/model_file.h"
#include "model/replay_model.h"
#include "model/tensor_types.h"
#include "sim/generated_routes.h"

namespace bevy {
namespace {

// All matrices but the experts'.
constexpr const char* kResidentType = "q8_0";

// Whose routing a shape of no known model has.
constexpr const char* kCustomRouting = "gpt-oss-20b";

struct Routes {
    RouteTrace trace;
    std::string source;
};

Result<Routes> generated_routes(const ReplayModelOptions& options) {
    const std::string profile_name = options.shape == "custom" ? kCustomRouting : options.shape;
    const Result<ModelProfile> profile = open_model_profile(profile_name);
    if (!profile)
        return std::unexpected(profile.error());
    const RandomModelOptions& model = options.model;
    for (const auto& [flag, value] : {std::pair{"--layers", model.layers},
                                      {"--experts", model.experts},
                                      {"--used", model.used}}) {
        if (value == 0)
            return fail(ErrorCode::kInvalidArgument,
                        std::format("generated routes for a custom shape need {}", flag),
                        "give --layers, --experts and --used, or the --shape of a known model");
    }
    if (model.experts > RouteTrace::kExpertsMax || model.used > model.experts)
        return fail(ErrorCode::kInvalidArgument,
                    std::format("{} of {} experts can't be routes", model.used, model.experts),
                    std::format("give at most --experts {}, and not more --used than those",
                                RouteTrace::kExpertsMax));
    const uint32_t tokens = options.skip + options.steps;
    return Routes{generate_routes({.layers = model.layers,
                                   .experts = model.experts,
                                   .top_k = model.used,
                                   .statistics = profile->routing,
                                   .requests = options.requests,
                                   .tokens_min = tokens,
                                   .tokens_max = tokens,
                                   .seed = model.seed}),
                  std::format("routes generated with the statistics of {}, seed {}", profile_name,
                              model.seed)};
}

Result<Routes> open_routes(const ReplayModelOptions& options) {
    if (options.generated)
        return generated_routes(options);
    if (options.trace.empty())
        return fail(ErrorCode::kInvalidArgument, "no routes to replay are given",
                    "give --trace FILE (from bevy run --record-routes), or --generated");
    Result<RouteTrace> trace = read_route_trace(options.trace);
    if (!trace)
        return std::unexpected(trace.error());
    const std::string name = options.trace.substr(options.trace.rfind('/') + 1);
    return Routes{std::move(*trace), std::format("routes of {}, requests drawn with seed {}", name,
                                                 options.model.seed)};
}

// The sizes that the routes have must be the model's; sizes that are left open become theirs.
Status match_sizes(const RouteTrace& trace, RandomModelOptions& model) {
    const auto match = [](const char* what, uint32_t& size, uint32_t routed) -> Status {
        if (size != 0 && size != routed)
            return fail(ErrorCode::kInvalidArgument,
                        std::format("the routes are of a model with {} {}, but the shape has {}",
                                    routed, what, size),
                        "give the --shape of the recorded model, or change it with --layers, "
                        "--experts and --used");
        size = routed;
        return {};
    };
    Status matched = match("layers", model.layers, trace.layers);
    if (matched)
        matched = match("experts per layer", model.experts, trace.experts);
    if (matched)
        matched = match("experts per token", model.used, trace.top_k);
    return matched;
}

// Experts keep the type that was asked for: it decides about the bytes that are read.
Status check_expert_type(const RandomModelOptions& options) {
    const Result<int32_t> type = type_named("--type", options.type);
    if (!type)
        return std::unexpected(type.error());
    for (const uint32_t width : {options.embedding, options.expert_ff}) {
        const Result<int32_t> fitting = fitting_type(*type, width);
        if (!fitting)
            return std::unexpected(fitting.error());
        if (*fitting != *type)
            return fail(ErrorCode::kInvalidArgument,
                        std::format("experts of {} x {} can't be {}: {} is not a multiple of its "
                                    "blocks of {}",
                                    options.embedding, options.expert_ff, options.type, width,
                                    find_tensor_type(*type)->block_weights),
                        "give a --type with smaller blocks, for example q4_0, q8_0 or mxfp4");
    }
    return {};
}

Result<ReplayModelSpec> spec_of(const ReplayModelOptions& options, const Routes& routes) {
    RandomModelOptions model = options.model;
    if (Status matched = match_sizes(routes.trace, model); !matched)
        return std::unexpected(matched.error());
    ReplayModelSpec spec;
    spec.trace = &routes.trace;
    spec.steps = options.steps;
    spec.skip = options.skip;
    spec.source = routes.source;
    Result<std::vector<uint32_t>> requests = choose_requests(
        routes.trace, options.requests, options.skip + options.steps, options.model.seed);
    if (!requests)
        return std::unexpected(requests.error());
    spec.requests = std::move(*requests);
    if (Status fits = check_replay_width(spec, model.embedding); !fits)
        return std::unexpected(fits.error());
    const ReplayChains chains = replay_chains(spec);
    if (model.vocabulary == 0)
        model.vocabulary = replay_vocabulary_min(chains);
    Result<RandomModelSpec> random = random_model_spec(model);
    if (!random)
        return std::unexpected(random.error());
    if (Status fits = check_expert_type(model); !fits)
        return std::unexpected(fits.error());
    spec.model = std::move(*random);
    spec.model.name = "replay " + (options.shape == "custom" ? model.architecture : options.shape);
    spec.model.type_of = [experts = *type_named("--type", model.type),
                          others =
                              find_tensor_type(kResidentType)->id](const RandomTensor& tensor) {
        return tensor.kind == WeightKind::kExpert ? experts : others;
    };
    return spec;
}

// How to start every chain, in our engine and in llama-server.
void print_chains(const ReplayModelSpec& spec) {
    const ReplayChains chains = replay_chains(spec);
    std::printf("%u chains of %u tokens; a prompt of one token starts a chain:\n", chains.requests,
                chains.steps);
    std::printf("  %-10s %-10s %s\n", "prompt", "token id", "request of the routes");
    for (uint32_t i = 0; i < chains.requests; ++i) {
        const ReplayPlace start{i, 0};
        std::printf("  %-10s %-10u %u\n", ReplayChains::text(start).c_str(), chains.token(start),
                    spec.requests[i]);
    }
    const std::string& path = spec.model.path;
    std::printf("run it:   bevy run -m %s -p \"<0:0>\" -p \"<1:0>\" --temp 0 -n %u --jsonl\n",
                path.c_str(), chains.steps);
    std::printf("check it: ... | bevy make-model verify-replay -m %s\n", path.c_str());
}

}  // namespace

int replay_model_command(const ReplayModelOptions& options) {
    const Result<Routes> routes = open_routes(options);
    if (!routes)
        return refuse(routes.error());
    Result<ReplayModelSpec> spec = spec_of(options, *routes);
    if (!spec)
        return refuse(spec.error());
    const int code = write_model([&](const WriteProgress& progress) -> Result<WrittenModel> {
        spec->model.on_progress = progress;
        Result<RandomModelReport> report = write_replay_model(*spec);
        if (!report)
            return std::unexpected(report.error());
        return WrittenModel{std::move(report->paths), report->weight_bytes};
    });
    if (code == kExitOk)
        print_chains(*spec);
    return code;
}

}  // namespace bevy
