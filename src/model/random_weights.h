// Random weights, encoded in a tensor type. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/prng.h"
#include "model/tensor_types.h"

namespace bevy {

// Normally distributed (nearly: a sum of four uniforms, so the same on every machine).
struct Distribution {
    float mean = 0;
    float deviation = 1;

    friend bool operator==(Distribution, Distribution) = default;
};

// Types that RandomWeights can encode: those that ggml quantises without an importance matrix.
bool is_encodable(int32_t type);

// Fills buffers with encoded weights, each one generated.
class RandomWeights {
public:
    // REQUIRES: is_encodable(type.id).
    RandomWeights(TensorType type, Distribution distribution, uint64_t seed);

    // REQUIRES: out is a whole number of blocks.
    void fill(std::span<std::byte> out);

private:
    void fill_chunk(std::span<std::byte> out);

    TensorType type_;
    Distribution distribution_;
    Prng prng_;
    std::vector<float> weights_;
};

// A few MB of encoded blocks that any number of large tensors copy their rows from.
class WeightPool {
public:
    WeightPool(TensorType type, Distribution distribution, uint64_t seed);

    bool serves(int32_t type, Distribution distribution) const {
        return type_.id == type && distribution_ == distribution;
    }
    // Runs of `row_blocks` blocks (or less, where that is more than the pool has) from random
    // places. REQUIRES: out is a whole number of blocks.
    void fill(std::span<std::byte> out, uint64_t row_blocks, Prng& prng) const;

private:
    TensorType type_;
    Distribution distribution_;
    std::vector<std::byte> blocks_;
};

}  // namespace bevy
