#include "cli/make_model_options.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include "cli/option_declarations.h"
#include "compute/arch/arch.h"

namespace bevy {

namespace {

constexpr const char* kShape = "Shape";
constexpr const char* kRoutes = "Routes";

// Shapes of published models, as far as a replay needs them.
struct NamedShape {
    std::string_view name;
    RandomModelOptions model;
};

const std::array<NamedShape, 3>& named_shapes() {
    static const std::array<NamedShape, 3> shapes = {{
        {"custom", ReplayModelOptions{}.model},
        {"gpt-oss-20b",
         {.architecture = "gpt-oss",
          .layers = 24,
          .experts = 32,
          .used = 4,
          .embedding = 2880,
          .heads = 64,
          .heads_kv = 8,
          .head_size = 64,
          .expert_ff = 2880,
          .vocabulary = 201088,
          .context = 131072,
          .type = "mxfp4"}},
        {"qwen3-30b-a3b",
         {.architecture = "qwen3moe",
          .layers = 48,
          .experts = 128,
          .used = 8,
          .embedding = 2048,
          .heads = 32,
          .heads_kv = 4,
          .head_size = 128,
          .expert_ff = 768,
          .vocabulary = 151936,
          .context = 40960,
          .type = "q4_K"}},
    }};
    return shapes;
}

void declare_output(CLI::App& app, ModelOutputOptions& o) {
    using option_group::kOutput;
    option(app, kOutput, "-o,--output", o.path, "file to write")->required()->type_name("FILE");
    flag(app, kOutput, "--force", o.force, "overwrite an existing file");
}

// A size with its range; a default outside of it stands for "left open".
CLI::Option* size(CLI::App& app, const char* flags, uint32_t& field, uint32_t low, uint32_t high,
                  const std::string& help) {
    return option(app, kShape, flags, field, help)->check(range(low, high));
}

// What all models of a free shape have.
void declare_shape(CLI::App& app, RandomModelOptions& o) {
    option(app, kShape, "--arch", o.architecture, with_choices("architecture", architectures()))
        ->type_name("NAME");
    size(app, "--layers", o.layers, 1, 1000, "layers");
    size(app, "--experts", o.experts, 1, 4096, "experts per layer");
    size(app, "--used", o.used, 1, 256, "experts that a token uses");
    size(app, "--embedding", o.embedding, 32, 65536, "width of the residual stream");
    size(app, "--heads", o.heads, 1, 1024, "attention heads");
    size(app, "--heads-kv", o.heads_kv, 1, 1024, "key and value heads");
    size(app, "--head-size", o.head_size, 2, 1024, "width of one head");
    size(app, "--expert-ff", o.expert_ff, 32, 131072, "width of one expert");
    size(app, "--vocab", o.vocabulary, 260, 1u << 20, "tokens of the vocabulary");
    size(app, "--context", o.context, 8, kTokensMax, "context in tokens");
}

void declare_seed_and_output(CLI::App& app, RandomModelOptions& o) {
    option(app, kShape, "--seed", o.seed, "the same seed gives the same file");
    declare_output(app, o.output);
}

void declare_random(CLI::App& app, RandomModelOptions& o) {
    declare_shape(app, o);
    option(app, kShape, "--type", o.type, "type of all matrices, for example q8_0 or q4_K");
    option(app, kShape, "--type-down", o.type_down, "type of the experts' down matrices");
    declare_seed_and_output(app, o);
}

void declare_replay(CLI::App& app, ReplayModelOptions& o) {
    CLI::Option* trace = option(app, kRoutes, "--trace", o.trace,
                                "recorded routes (.rtrace, from bevy run --record-routes)")
                             ->type_name("FILE");
    app.add_flag("--generated", o.generated,
                 "routes with the statistics of the shape's model (custom: of gpt-oss-20b)")
        ->group(kRoutes)
        ->excludes(trace);
    number(app, kRoutes, "--requests", o.requests, 1u, 1u << 16,
           "requests to replay, drawn from those that are long enough");
    number(app, kRoutes, "--steps", o.steps, 1u, 1u << 16, "tokens of each");
    number(app, kRoutes, "--skip", o.skip, 0u, kTokensMax,
           "tokens left out at the beginning of each: prompts share templates");

    // Declared before the sizes, because options take effect in the order of their declarations:
    // each size that is given changes that of the shape.
    app.add_option_function<std::string>(
           "--shape",
           [&o](const std::string& name) {
               o.shape = name;
               o.model = std::ranges::find(named_shapes(), name, &NamedShape::name)->model;
           },
           with_choices("sizes and type of a known model, which the options below may change",
                        std::span<const NamedShape>(named_shapes())))
        ->group(kShape)
        ->check(one_of(std::span<const NamedShape>(named_shapes())))
        ->type_name("NAME")
        ->default_str(o.shape);
    declare_shape(app, o.model);
    for (const char* name : {"--layers", "--experts", "--used"})
        app.get_option(name)->default_str("as the routes");
    app.get_option("--vocab")->default_str("as the chains need");
    option(app, kShape, "--type", o.model.type, "type of the experts: q4_0, q4_K, q8_0, mxfp4 ...");
    declare_seed_and_output(app, o.model);
}

void declare_verify(CLI::App& app, VerifyReplayOptions& o) {
    option(app, option_group::kModel, "-m,--model", o.model, "the replay model")
        ->required()
        ->type_name("FILE");
    app.add_option("output", o.input,
                   "what was generated: JSON lines of bevy run --jsonl or of llama-server's "
                   "/completion, or numbers of tokens, a reply per line; -: standard input")
        ->type_name("FILE")
        ->capture_default_str();
}

void declare_inflate(CLI::App& app, InflateModelOptions& o) {
    option(app, option_group::kModel, "-m,--model", o.model, "the model to inflate")
        ->required()
        ->type_name("FILE");
    app.add_option("--expert-ff", o.expert_ff, "new width of the experts")
        ->group(kShape)
        ->required()
        ->check(range(1u, 1u << 24));
    declare_output(app, o.output);
}

}  // namespace

void declare_make_model_options(CLI::App& app, MakeModelOptions& o) {
    using enum MakeModelOptions::Kind;
    app.require_subcommand(1);
    const auto add = [&](const char* name, const char* help, MakeModelOptions::Kind kind) {
        CLI::App* sub = app.add_subcommand(name, help);
        sub->parse_complete_callback([&o, kind] { o.kind = kind; });
        return sub;
    };
    declare_random(*add("random", "random weights of any shape", kRandom), o.random);
    declare_inflate(*add("inflate", "a model with wider experts and the same output", kInflate),
                    o.inflate);
    declare_replay(
        *add("replay", "a model that replays routes, with a known output, in any engine", kReplay),
        o.replay);
    declare_verify(*add("verify-replay", "check the output of a replay", kVerifyReplay), o.verify);
}

}  // namespace bevy
