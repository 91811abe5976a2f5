// Small models with random weights for tests: any architecture, shape and mix of types.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/assert.h"
#include "compute/arch/arch.h"
#include "ggml.h"
#include "model/random_model.h"

namespace bevy::testing {

// A file of the test's own, removed at the end of the scope.
class TemporaryModel {
public:
    explicit TemporaryModel(std::string path) : path_(std::move(path)) {}
    ~TemporaryModel() {
        std::error_code ignored;
        std::filesystem::remove(path_, ignored);
    }
    TemporaryModel(const TemporaryModel&) = delete;
    TemporaryModel& operator=(const TemporaryModel&) = delete;
    const std::string& path() const { return path_; }

private:
    std::string path_;
};

inline WeightKind weight_kind(TensorRole role) {
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
            return WeightKind::kVector;
    }
    BEVY_ASSERT(false);
}

// `edit` may change the list of tensors before it is written.
inline std::unique_ptr<TemporaryModel> random_model(
    const ModelShape& shape, uint64_t seed, std::function<int32_t(const RandomTensor&)> type_of,
    const std::function<void(std::vector<RandomTensor>&)>& edit = {}) {
    static int count = 0;
    Result<const Architecture*> architecture = find_architecture(shape.architecture);
    BEVY_ASSERT(architecture.has_value());
    RandomModelSpec spec;
    spec.path =
        (std::filesystem::temp_directory_path() /
         ("bevy-compute-" + std::to_string(::getpid()) + "-" + std::to_string(count++) + ".gguf"))
            .string();
    spec.overwrite = true;
    spec.architecture = shape.architecture;
    spec.name = "random";
    spec.vocabulary = shape.vocabulary;
    spec.seed = seed;
    for (const TensorSpec& tensor : (*architecture)->tensors(shape))
        spec.tensors.push_back({tensor.name, tensor.dims, weight_kind(tensor.role), tensor.layer});
    if (edit)
        edit(spec.tensors);
    spec.type_of = std::move(type_of);
    spec.write_shape = [&](MetadataWriter& writer) { (*architecture)->write_shape(shape, writer); };
    Result<RandomModelReport> report = write_random_model(spec);
    if (!report)
        std::fprintf(stderr, "%s\n", report.error().text().c_str());
    BEVY_ASSERT(report.has_value());
    return std::make_unique<TemporaryModel>(spec.path);
}

inline std::function<int32_t(const RandomTensor&)> all_of(ggml_type type) {
    return [type](const RandomTensor&) { return static_cast<int32_t>(type); };
}

// Rows are multiples of 256, so that every type fits.
inline ModelShape small_shape(const std::string& architecture) {
    ModelShape shape;
    shape.architecture = architecture;
    shape.layers = 4;
    shape.context_train = 1024;
    shape.embedding = 256;
    shape.vocabulary = 512;
    shape.heads = 4;
    shape.heads_kv = 2;
    shape.head_size_k = shape.head_size_v = shape.rope_dimensions = 64;
    shape.experts = 8;
    shape.experts_used = 3;
    shape.expert_ff = 256;
    if (architecture == "gpt-oss") {
        shape.sliding_window = 24;
        shape.sliding_window_period = 2;
        shape.rope_base = 150000.0f;
        shape.rope_scale = 1.0f / 32.0f;
        shape.rope_context_original = 256;
        shape.rope_yarn_ext_factor = 1.0f;
        shape.norm_epsilon = 1e-5f;
    }
    return shape;
}

}  // namespace bevy::testing
