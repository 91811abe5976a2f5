// Writes a model of any shape with random weights: for tests of size, format and load, without a
// download. It computes sane numbers and talks garbage; its routing is near uniform, the worst case
// for a cache of experts.
//
// The same spec gives the same bytes everywhere. Matrices of up to a million weights are generated
// one by one; the rows of larger ones are copied from pools of quantised blocks of a few MB, at
// random places, so that tens of GB are written at the speed of the disk. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/metadata.h"

namespace bevy {

// Decides about the size of the weights, and which tensors may be quantised.
enum class WeightKind : uint8_t {
    kEmbedding,
    kMatrix,
    kHead,
    kExpert,
    kNorm,    // F32, near one
    kVector,  // F32: biases and sinks near zero; with two dimensions (a router) scaled as a matrix
};

struct RandomTensor {
    std::string name;
    std::vector<int64_t> dims;  // ggml order
    WeightKind kind = WeightKind::kMatrix;
    int32_t layer = -1;  // for type_of
    // So many outputs at the beginning are zero: rows of each matrix, or numbers of each row where
    // `is_bias` says that an output is a number.
    int64_t zero_outputs = 0;
    bool is_bias = false;
    // Instead of random weights: called for every row, from the first to the last, with zeros to
    // overwrite. May be empty. REQUIRES: a row takes a MiB at most.
    std::function<void(uint64_t row, std::span<float> weights)> fill_row;
};

struct RandomModelSpec {
    std::string path;
    bool overwrite = false;
    uint32_t tensors_per_shard = 0;  // 0: one file
    std::string architecture;
    std::string name;
    std::vector<RandomTensor> tensors;
    uint32_t vocabulary = 0;  // tokens; see byte_vocabulary.h
    std::vector<std::string> whole_tokens;
    uint64_t seed = 1;
    // The type (enum ggml_type) wanted for a tensor; not asked for kNorm and kVector.
    std::function<int32_t(const RandomTensor&)> type_of;
    // Sets the architecture's keys ("{arch}.block_count" ...). general.* and tokenizer.* are set
    // already.
    std::function<void(MetadataWriter&)> write_shape;
    // Bytes of weights written so far, and in all. False gives up (kCancelled). May be empty.
    std::function<bool(uint64_t done, uint64_t total)> on_progress;
};

// A tensor whose rows the wanted type can't hold; as llama-quantize would do it.
struct TypeFallback {
    std::string tensor;
    int32_t wanted = 0;
    int32_t used = 0;
};

struct RandomModelReport {
    std::vector<std::string> paths;
    uint64_t weight_bytes = 0;
    std::vector<TypeFallback> fallbacks;
};

// The types that type_of may give, by name, for help and errors: "F32, F16, ...".
std::string random_model_type_names();

// The type that a tensor with rows of `row_weights` gets when `wanted` is asked for; `wanted`
// itself where it fits. Error: kUnsupported for types that can't be written.
Result<int32_t> fitting_type(int32_t wanted, int64_t row_weights);

// Errors: kInvalidArgument and kUnsupported (names, dimensions, types, vocabulary; nothing has been
// written), kIo, kCancelled. After an error no file is left behind.
Result<RandomModelReport> write_random_model(const RandomModelSpec& spec);

}  // namespace bevy
