#include "cli/model_writing.h"

#include <format>
#include <optional>
#include <utility>

#include "base/units.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/report.h"
#include "compute/arch/arch.h"
#include "model/model_file.h"
#include "model/tensor_types.h"

namespace bevy {
namespace {

ModelShape shape_of(const Architecture& architecture, const RandomModelOptions& options) {
    ModelShape shape;
    shape.architecture = options.architecture;
    shape.name = "random " + options.architecture;
    shape.layers = options.layers;
    shape.context_train = options.context;
    shape.embedding = options.embedding;
    shape.vocabulary = options.vocabulary;
    shape.heads = options.heads;
    shape.heads_kv = options.heads_kv;
    shape.head_size_k = options.head_size;
    shape.head_size_v = options.head_size;
    shape.rope_dimensions = options.head_size;
    shape.experts = options.experts;
    shape.experts_used = options.used;
    shape.expert_ff = options.expert_ff;
    architecture.complete_shape(shape);
    return shape;
}

Status check(const RandomModelOptions& options) {
    if (options.used > options.experts)
        return fail(
            ErrorCode::kInvalidArgument,
            std::format("--used {} is more than --experts {}", options.used, options.experts),
            std::format("give --used {} or less", options.experts));
    if (options.heads % options.heads_kv != 0)
        return fail(ErrorCode::kInvalidArgument,
                    std::format("--heads {} is not a multiple of --heads-kv {}", options.heads,
                                options.heads_kv),
                    "every key and value head serves the same number of heads");
    if (options.head_size % 2 != 0)
        return fail(ErrorCode::kInvalidArgument,
                    std::format("--head-size {} is odd", options.head_size),
                    "rotary positions need pairs; give an even number");
    return {};
}

}  // namespace

Result<int32_t> type_named(const char* flag, const std::string& name) {
    const std::optional<TensorType> type = find_tensor_type(name);
    if (!type)
        return fail(ErrorCode::kInvalidArgument,
                    std::string(flag) + ": unknown type '" + name + "'",
                    "supported: " + random_model_type_names());
    return type->id;
}

namespace {

WeightKind kind_of(TensorRole role) {
    switch (role) {
        case TensorRole::kEmbedding:
            return WeightKind::kEmbedding;
        case TensorRole::kMatrix:
            return WeightKind::kMatrix;
        case TensorRole::kHead:
            return WeightKind::kHead;
        case TensorRole::kExpert:
            return WeightKind::kExpert;
        case TensorRole::kNorm:
            return WeightKind::kNorm;
        case TensorRole::kVector:
            break;
    }
    return WeightKind::kVector;
}

}  // namespace

Result<RandomModelSpec> random_model_spec(const RandomModelOptions& options) {
    if (Status status = check(options); !status)
        return std::unexpected(status.error());
    Result<const Architecture*> architecture = find_architecture(options.architecture);
    if (!architecture)
        return std::unexpected(architecture.error());
    const Result<int32_t> type = type_named("--type", options.type);
    if (!type)
        return std::unexpected(type.error());
    const Result<int32_t> type_down =
        options.type_down.empty() ? type : type_named("--type-down", options.type_down);
    if (!type_down)
        return std::unexpected(type_down.error());
    const ModelShape shape = shape_of(**architecture, options);
    RandomModelSpec spec;
    spec.path = options.output.path;
    spec.overwrite = options.output.force;
    spec.architecture = options.architecture;
    spec.name = shape.name;
    for (const TensorSpec& tensor : (*architecture)->tensors(shape))
        spec.tensors.push_back({tensor.name, tensor.dims, kind_of(tensor.role), tensor.layer});
    spec.vocabulary = options.vocabulary;
    spec.seed = options.seed;
    spec.type_of = [type = *type, down = *type_down](const RandomTensor& tensor) {
        return tensor.name.contains("ffn_down_exps") ? down : type;
    };
    spec.write_shape = [write = (*architecture)->write_shape, shape](MetadataWriter& writer) {
        write(shape, writer);
    };
    return spec;
}

int write_model(const std::function<Result<WrittenModel>(const WriteProgress&)>& write) {
    Result<WrittenModel> written;
    {
        ProgressLine progress(stderr, "writing", false);
        written = write([&](uint64_t done, uint64_t total) {
            progress.update(done, total);
            return !interrupted();
        });
    }
    if (!written) {
        if (written.error().code == ErrorCode::kCancelled && interrupted())
            return kExitInterrupted;
        print_error(written.error());
        return kExitFailure;
    }
    for (const std::string& path : written->paths)
        std::printf("%s: %s of weights\n", path.c_str(),
                    format_bytes(written->weight_bytes).c_str());
    return kExitOk;
}

int refuse(const Error& error) {
    print_error(error);
    return error.code == ErrorCode::kInvalidArgument ? kExitUsage : kExitFailure;
}

int make_model_command(const MakeModelOptions& options) {
    switch (options.kind) {
        case MakeModelOptions::Kind::kRandom:
            return random_model_command(options.random);
        case MakeModelOptions::Kind::kInflate:
            return inflate_model_command(options.inflate);
        case MakeModelOptions::Kind::kReplay:
            return replay_model_command(options.replay);
        case MakeModelOptions::Kind::kVerifyReplay:
            break;
    }
    return verify_replay_command(options.verify);
}

int random_model_command(const RandomModelOptions& options) {
    Result<RandomModelSpec> spec = random_model_spec(options);
    if (!spec)
        return refuse(spec.error());
    std::vector<TypeFallback> fallbacks;
    const int code = write_model([&](const WriteProgress& progress) -> Result<WrittenModel> {
        spec->on_progress = progress;
        Result<RandomModelReport> report = write_random_model(*spec);
        if (!report)
            return std::unexpected(report.error());
        fallbacks = std::move(report->fallbacks);
        return WrittenModel{std::move(report->paths), report->weight_bytes};
    });
    for (const TypeFallback& fallback : fallbacks)
        print_notice(std::format("{} is {}, because its rows do not fit {}", fallback.tensor,
                                 tensor_type_name(fallback.used),
                                 tensor_type_name(fallback.wanted)));
    return code;
}

}  // namespace bevy
