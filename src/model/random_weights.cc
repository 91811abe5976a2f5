#include "model/random_weights.h"

#include <ggml.h>

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "base/units.h"

namespace bevy {

namespace {

constexpr uint64_t kChunkWeights = 1 << 16;  // a multiple of every block
constexpr uint64_t kPoolBytes = 4 * kMiB;

constexpr ggml_type kEncodable[] = {GGML_TYPE_F32,  GGML_TYPE_F16,  GGML_TYPE_BF16, GGML_TYPE_Q8_0,
                                    GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1,
                                    GGML_TYPE_Q2_K, GGML_TYPE_Q3_K, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K,
                                    GGML_TYPE_Q6_K, GGML_TYPE_MXFP4};

// Mean zero, deviation one. Integers up to the last step, which keeps it exact.
float standard_normal(Prng& prng) {
    const uint64_t bits = prng.next();
    const auto sum = static_cast<int32_t>((bits & 0xffff) + ((bits >> 16) & 0xffff) +
                                          ((bits >> 32) & 0xffff) + (bits >> 48));
    constexpr int32_t kMean = 2 * 0xffff;
    constexpr float kDeviation = 37837.227f;  // 65536 / sqrt(3)
    return static_cast<float>(sum - kMean) / kDeviation;
}

}  // namespace

bool is_encodable(int32_t type) {
    return std::ranges::find(kEncodable, static_cast<ggml_type>(type)) != std::end(kEncodable);
}

RandomWeights::RandomWeights(TensorType type, Distribution distribution, uint64_t seed)
    : type_(type), distribution_(distribution), prng_(seed) {
    BEVY_ASSERT(is_encodable(type.id));
}

void RandomWeights::fill(std::span<std::byte> out) {
    const uint64_t chunk_bytes = type_.row_bytes(kChunkWeights);
    while (!out.empty()) {
        const auto run = static_cast<size_t>(std::min<uint64_t>(out.size(), chunk_bytes));
        fill_chunk(out.first(run));
        out = out.subspan(run);
    }
}

void RandomWeights::fill_chunk(std::span<std::byte> out) {
    BEVY_ASSERT(out.size() % type_.block_bytes == 0);
    const auto blocks = static_cast<int64_t>(out.size() / type_.block_bytes);
    const int64_t count = blocks * type_.block_weights;
    weights_.resize(static_cast<size_t>(count));
    for (float& weight : weights_)
        weight = distribution_.mean + distribution_.deviation * standard_normal(prng_);
    // Blocks do not depend on each other, so a chunk may pass as one long row.
    const size_t bytes = ggml_quantize_chunk(static_cast<ggml_type>(type_.id), weights_.data(),
                                             out.data(), 0, 1, count, nullptr);
    BEVY_ASSERT(bytes == out.size());
}

WeightPool::WeightPool(TensorType type, Distribution distribution, uint64_t seed)
    : type_(type), distribution_(distribution), blocks_(round_down(kPoolBytes, type.block_bytes)) {
    RandomWeights(type, distribution, seed).fill(blocks_);
}

void WeightPool::fill(std::span<std::byte> out, uint64_t row_blocks, Prng& prng) const {
    const uint64_t pool_blocks = blocks_.size() / type_.block_bytes;
    const uint64_t run_blocks = std::min(row_blocks, pool_blocks / 2);
    while (!out.empty()) {
        const auto run =
            static_cast<size_t>(std::min<uint64_t>(out.size(), run_blocks * type_.block_bytes));
        const uint64_t begin = prng.below(pool_blocks - run_blocks + 1) * type_.block_bytes;
        std::memcpy(out.data(), blocks_.data() + begin, run);
        out = out.subspan(run);
    }
}

}  // namespace bevy
