// bevy make-model random: a model file of any shape, for tests without a download.
#include <format>
#include <optional>
#include <utility>

#include "base/units.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/report.h"
#include "compute/arch/arch.h"
#include "model/model_file.h"
#include "model/random_model.h"
#include "model/tensor_types.h"

namespace bevy {
namespace {

ModelShape shape_of(const Architecture& architecture, const MakeModelOptions& options) {
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

Status check(const MakeModelOptions& options) {
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

Result<int32_t> type_named(const char* flag, const std::string& name) {
    const std::optional<TensorType> type = find_tensor_type(name);
    if (!type)
        return fail(ErrorCode::kInvalidArgument,
                    std::string(flag) + ": unknown type '" + name + "'",
                    "supported: " + random_model_type_names());
    return type->id;
}

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

Result<RandomModelSpec> spec_of(const MakeModelOptions& options) {
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
    spec.path = options.output;
    spec.overwrite = options.force;
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

}  // namespace

int make_model_command(const MakeModelOptions& options) {
    Result<RandomModelSpec> spec = spec_of(options);
    if (!spec) {
        print_error(spec.error());
        return spec.error().code == ErrorCode::kInvalidArgument ? kExitUsage : kExitFailure;
    }
    Result<RandomModelReport> report;
    {
        ProgressLine progress(stderr, "writing", false);
        spec->on_progress = [&](uint64_t done, uint64_t total) {
            progress.update(done, total);
            return !interrupted();
        };
        report = write_random_model(*spec);
    }
    if (!report) {
        if (report.error().code == ErrorCode::kCancelled && interrupted())
            return kExitInterrupted;
        print_error(report.error());
        return kExitFailure;
    }
    for (const TypeFallback& fallback : report->fallbacks)
        print_notice(std::format("{} is {}, because its rows do not fit {}", fallback.tensor,
                                 tensor_type_name(fallback.used),
                                 tensor_type_name(fallback.wanted)));
    for (const std::string& path : report->paths)
        std::printf("%s: %s of weights\n", path.c_str(),
                    format_bytes(report->weight_bytes).c_str());
    return kExitOk;
}

}  // namespace bevy
