#include "model/random_model.h"

#include <ggml.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "base/assert.h"
#include "base/prng.h"
#include "base/units.h"
#include "model/byte_vocabulary.h"
#include "model/gguf_writer.h"
#include "model/model_file.h"
#include "model/random_weights.h"
#include "model/tensor_types.h"

namespace bevy {

namespace {

constexpr uint64_t kExactWeightsMax = 1 << 20;
constexpr uint64_t kChunkBytes = 1 * kMiB;
constexpr uint32_t kQuantizationVersion = 2;  // GGML_QNT_VERSION of the blocks that ggml writes

// Where the blocks of a type are longer than a row, the next type to try. Like llama-quantize, but
// without the types that lie between: a fallback is for a few tensors, precision costs little
// there.
struct WritableType {
    int32_t type;
    int32_t fallback;
};

constexpr WritableType kWritable[] = {
    {GGML_TYPE_F32, GGML_TYPE_F32},   {GGML_TYPE_F16, GGML_TYPE_F16},
    {GGML_TYPE_BF16, GGML_TYPE_BF16}, {GGML_TYPE_Q8_0, GGML_TYPE_F16},
    {GGML_TYPE_Q4_0, GGML_TYPE_F16},  {GGML_TYPE_Q4_1, GGML_TYPE_F16},
    {GGML_TYPE_Q5_0, GGML_TYPE_F16},  {GGML_TYPE_Q5_1, GGML_TYPE_F16},
    {GGML_TYPE_Q2_K, GGML_TYPE_Q4_0}, {GGML_TYPE_Q3_K, GGML_TYPE_Q4_0},
    {GGML_TYPE_Q4_K, GGML_TYPE_Q5_0}, {GGML_TYPE_Q5_K, GGML_TYPE_Q8_0},
    {GGML_TYPE_Q6_K, GGML_TYPE_Q8_0}, {GGML_TYPE_MXFP4, GGML_TYPE_F16},
};

const WritableType* find_writable(int32_t type) {
    const auto* row = std::ranges::find(kWritable, type, &WritableType::type);
    return row == std::end(kWritable) ? nullptr : row;
}

bool is_vector(WeightKind kind) {
    return kind == WeightKind::kNorm || kind == WeightKind::kVector;
}

uint64_t mix(uint64_t seed, uint64_t value) {
    return Prng(Prng(seed).next() ^ value).next();
}

// FNV-1a. A tensor's weights depend on its name, not on its place.
uint64_t hash(std::string_view text) {
    uint64_t value = 0xcbf29ce484222325;
    for (const char c : text)
        value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return value;
}

// Keeps the size of activations near one from layer to layer, and logits at a few units.
Distribution distribution_of(const RandomTensor& tensor, bool tied_head) {
    constexpr float kLogitDeviation = 3.0f;
    constexpr float kSmall = 0.05f;
    const float per_input = 1.0f / std::sqrt(static_cast<float>(tensor.dims[0]));
    switch (tensor.kind) {
        case WeightKind::kNorm:
            return {1.0f, kSmall};
        case WeightKind::kVector:
            return {0.0f, tensor.dims.size() > 1 ? per_input : kSmall};
        case WeightKind::kHead:
            return {0.0f, kLogitDeviation * per_input};
        case WeightKind::kEmbedding:
            // As a head it must be small, or every token would predict itself.
            return {0.0f, tied_head ? per_input : 1.0f};
        case WeightKind::kMatrix:
        case WeightKind::kExpert:
            break;
    }
    return {0.0f, per_input};
}

class RandomModelJob {
public:
    explicit RandomModelJob(const RandomModelSpec& spec)
        : spec_(spec),
          writer_({spec.path, spec.architecture, spec.overwrite, spec.tensors_per_shard}),
          tied_head_(std::ranges::none_of(spec.tensors, [](const RandomTensor& tensor) {
              return tensor.kind == WeightKind::kHead;
          })) {}

    Result<RandomModelReport> run() {
        Status done = write_head();
        for (size_t i = 0; done && i < spec_.tensors.size(); ++i)
            done = write_tensor(spec_.tensors[i], types_[i]);
        if (done)
            done = writer_.finish();
        if (!done)
            return std::unexpected(done.error());
        report_.paths = writer_.paths();
        report_.weight_bytes = writer_.data_bytes();
        return std::move(report_);
    }

private:
    Status write_head() {
        writer_.set_str("general.name", spec_.name);
        writer_.set_u32("general.quantization_version", kQuantizationVersion);
        if (Status vocabulary =
                write_byte_vocabulary(writer_, spec_.vocabulary, spec_.whole_tokens);
            !vocabulary)
            return vocabulary;
        spec_.write_shape(writer_);
        for (const RandomTensor& tensor : spec_.tensors) {
            if (Status added = add_tensor(tensor); !added)
                return added;
        }
        return writer_.begin_data();
    }

    Status add_tensor(const RandomTensor& tensor) {
        int32_t type = GGML_TYPE_F32;
        if (!is_vector(tensor.kind) && !tensor.dims.empty()) {
            const int32_t wanted = spec_.type_of(tensor);
            const Result<int32_t> fitting = fitting_type(wanted, tensor.dims[0]);
            if (!fitting)
                return std::unexpected(fitting.error());
            type = *fitting;
            if (type != wanted)
                report_.fallbacks.push_back({tensor.name, wanted, type});
        }
        types_.push_back(type);
        return writer_.add_tensor(tensor.name, type, tensor.dims);
    }

    Status write_tensor(const RandomTensor& tensor, int32_t type_id) {
        const TensorType type = *find_tensor_type(type_id);
        const Distribution distribution = distribution_of(tensor, tied_head_);
        const uint64_t seed = mix(spec_.seed, hash(tensor.name));
        const uint64_t row_bytes = type.row_bytes(tensor.dims[0]);
        uint64_t weights = 1;
        for (const int64_t dim : tensor.dims)
            weights *= static_cast<uint64_t>(dim);
        const uint64_t bytes = type.row_bytes(static_cast<int64_t>(weights));

        if (tensor.fill_row)
            return write_given(tensor, type, bytes / row_bytes);
        zeros_ = zeros_of(tensor, type);
        if (is_vector(tensor.kind) || weights <= kExactWeightsMax) {
            RandomWeights source(type, distribution, seed);
            return write_chunks(type, bytes, type.block_bytes,
                                [&](std::span<std::byte> out) { source.fill(out); });
        }
        const WeightPool& pool = pool_for(type, distribution);
        Prng prng(seed);
        return write_chunks(type, bytes, row_bytes, [&](std::span<std::byte> out) {
            pool.fill(out, row_bytes / type.block_bytes, prng);
        });
    }

    // Which bytes of a tensor are zero: the first ones of every period.
    struct ZeroBytes {
        uint64_t bytes = 0;
        uint64_t period = 0;
    };

    static ZeroBytes zeros_of(const RandomTensor& tensor, const TensorType& type) {
        const auto outputs = static_cast<uint64_t>(tensor.zero_outputs);
        const uint64_t row_bytes = type.row_bytes(tensor.dims[0]);
        if (tensor.is_bias)
            return {outputs * sizeof(float), row_bytes};
        const uint64_t rows = tensor.dims.size() > 1 ? static_cast<uint64_t>(tensor.dims[1]) : 1;
        return {outputs * row_bytes, rows * row_bytes};
    }

    // Blocks of zero bytes are zeros in every type that can be written.
    static void clear(std::span<std::byte> out, uint64_t at, const ZeroBytes& zeros) {
        if (zeros.bytes == 0)
            return;
        const uint64_t end = at + out.size();
        for (uint64_t begin = round_down(at, zeros.period); begin < end; begin += zeros.period) {
            const uint64_t first = std::max(begin, at);
            const uint64_t last = std::min(begin + zeros.bytes, end);
            if (first < last)
                std::ranges::fill(out.subspan(first - at, last - first), std::byte{0});
        }
    }

    // Rows that the caller gives.
    Status write_given(const RandomTensor& tensor, const TensorType& type, uint64_t rows) {
        std::vector<float> weights(static_cast<size_t>(tensor.dims[0]));
        const uint64_t row_bytes = type.row_bytes(tensor.dims[0]);
        BEVY_ASSERT(row_bytes <= kChunkBytes);
        uint64_t row = 0;
        zeros_ = {};
        return write_chunks(type, rows * row_bytes, row_bytes, [&](std::span<std::byte> out) {
            for (; !out.empty(); out = out.subspan(row_bytes)) {
                std::ranges::fill(weights, 0.0f);
                tensor.fill_row(row++, weights);
                ggml_quantize_chunk(static_cast<ggml_type>(type.id), weights.data(), out.data(), 0,
                                    1, tensor.dims[0], nullptr);
            }
        });
    }

    // `step`: a multiple of it makes a chunk, where it is small enough.
    template <class Fill>
    Status write_chunks(const TensorType& type, uint64_t bytes, uint64_t step, Fill fill) {
        const uint64_t unit = step <= kChunkBytes ? step : type.block_bytes;
        chunk_.resize(round_down(kChunkBytes, unit));
        uint64_t at = 0;
        while (bytes > 0) {
            const auto run = static_cast<size_t>(std::min<uint64_t>(bytes, chunk_.size()));
            const std::span<std::byte> out = std::span(chunk_).first(run);
            fill(out);
            clear(out, at, zeros_);
            at += run;
            if (Status written = writer_.write(out); !written)
                return written;
            bytes -= run;
            bytes_done_ += run;
            if (spec_.on_progress && !spec_.on_progress(bytes_done_, writer_.data_bytes()))
                return fail(ErrorCode::kCancelled, "writing '" + spec_.path + "' was given up");
        }
        return {};
    }

    const WeightPool& pool_for(const TensorType& type, Distribution distribution) {
        for (const WeightPool& pool : pools_) {
            if (pool.serves(type.id, distribution))
                return pool;
        }
        const uint64_t seed = mix(mix(spec_.seed, static_cast<uint64_t>(type.id)),
                                  std::bit_cast<uint32_t>(distribution.deviation));
        return pools_.emplace_back(type, distribution, seed);
    }

    const RandomModelSpec& spec_;
    GgufWriter writer_;
    bool tied_head_;
    std::vector<int32_t> types_;  // as spec_.tensors
    std::vector<WeightPool> pools_;
    std::vector<std::byte> chunk_;
    ZeroBytes zeros_;  // of the tensor being written
    uint64_t bytes_done_ = 0;
    RandomModelReport report_;
};

}  // namespace

std::string random_model_type_names() {
    std::string names;
    for (const WritableType& row : kWritable)
        names += (names.empty() ? "" : ", ") + tensor_type_name(row.type);
    return names;
}

Result<int32_t> fitting_type(int32_t wanted, int64_t row_weights) {
    const WritableType* row = find_writable(wanted);
    if (!row)
        return fail(ErrorCode::kUnsupported,
                    "random weights can't be written as " + tensor_type_name(wanted),
                    "supported: " + random_model_type_names());
    int32_t type = wanted;
    while (row_weights % find_tensor_type(type)->block_weights != 0)
        type = find_writable(type)->fallback;
    return type;
}

Result<RandomModelReport> write_random_model(const RandomModelSpec& spec) {
    return RandomModelJob(spec).run();
}

}  // namespace bevy
