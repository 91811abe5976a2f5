#include "model/replay_model.h"

#include <algorithm>
#include <cmath>
#include <format>
#include <string_view>
#include <utility>

#include "base/assert.h"
#include "base/prng.h"
#include "model/byte_vocabulary.h"

namespace bevy {

namespace {

// Free dimensions that are needed at least, for attention and experts to have an effect: a block.
constexpr int64_t kFreeMin = 32;

// Logits of the first and the last chosen expert; all others have zero. With softmax, the heaviest
// of four experts weighs about half, as in real models.
constexpr float kFirstLogit = 4.0f;
constexpr float kLastLogit = 2.0f;

class ReplayPlan {
public:
    explicit ReplayPlan(const ReplayModelSpec& spec) : spec_(spec), chains_(replay_chains(spec)) {}

    const ReplayChains& chains() const { return chains_; }

    Status apply(std::vector<RandomTensor>& tensors) {
        const auto embedding = std::ranges::find(tensors, kEmbedding, &RandomTensor::name);
        BEVY_ASSERT(embedding != tensors.end());
        width_ = embedding->dims[0];
        if (Status fits = check_replay_width(spec_, width_); !fits)
            return fits;
        for (RandomTensor& tensor : tensors)
            apply(tensor);
        return {};
    }

private:
    static constexpr std::string_view kEmbedding = "token_embd.weight";

    void apply(RandomTensor& tensor) {
        const std::string_view name = tensor.name;
        if (name == kEmbedding) {
            tensor.fill_row = [this, size = code_size()](uint64_t token, std::span<float> row) {
                row[chains_.code_of_token(static_cast<uint32_t>(token))] = size;
            };
        } else if (name == "output.weight") {
            tensor.fill_row = [this](uint64_t token, std::span<float> row) {
                // The token follows the step before it.
                if (const auto at = chains_.find(static_cast<uint32_t>(token)))
                    row[chains_.code(
                        {at->request, (at->step + chains_.steps - 1) % chains_.steps})] = 1.0f;
            };
        } else if (name.ends_with("ffn_gate_inp.weight")) {
            tensor.fill_row = [this, layer = static_cast<uint32_t>(tensor.layer)](
                                  uint64_t expert, std::span<float> row) {
                fill_router(layer, static_cast<uint32_t>(expert), row);
            };
        } else if (name.ends_with("ffn_gate_inp.bias")) {
            tensor.is_bias = true;
            tensor.zero_outputs = tensor.dims[0];
        } else if (name.ends_with("attn_output.weight") || name.ends_with("ffn_down_exps.weight")) {
            tensor.zero_outputs = chains_.codes();
        } else if (name.ends_with("attn_output.bias") || name.ends_with("ffn_down_exps.bias")) {
            tensor.is_bias = true;
            tensor.zero_outputs = chains_.codes();
        }
    }

    // Every layer adds at most about one unit of energy per free dimension, by its attention and
    // again by its experts (random_model.cc scales weights so). The code gets four times of all.
    float code_size() const {
        const auto free = static_cast<float>(width_ - chains_.codes());
        return 2.0f * std::sqrt(2.0f * static_cast<float>(spec_.trace->layers) * free);
    }

    // The norm in front of the router makes the code about sqrt(width) large.
    void fill_router(uint32_t layer, uint32_t expert, std::span<float> row) const {
        const float scale = 1.0f / std::sqrt(static_cast<float>(width_));
        for (uint32_t code = 0; code < chains_.codes(); ++code) {
            const ReplayPlace at = chains_.place(code);
            const std::span<const uint8_t> route =
                spec_.trace->route(spec_.requests[at.request], spec_.skip + at.step, layer);
            const auto found = std::ranges::find(route, expert);
            if (found == route.end())
                continue;
            const auto rank = static_cast<float>(found - route.begin());
            const auto ranks = static_cast<float>(std::max<size_t>(route.size() - 1, 1));
            row[code] = scale * (kFirstLogit - (kFirstLogit - kLastLogit) * rank / ranks);
        }
    }

    const ReplayModelSpec& spec_;
    ReplayChains chains_;
    int64_t width_ = 0;  // of the residual stream
};

}  // namespace

Result<std::vector<uint32_t>> choose_requests(const RouteTrace& trace, uint32_t count,
                                              uint32_t tokens, uint64_t seed) {
    std::vector<uint32_t> usable;
    for (uint32_t i = 0; i < trace.requests.size(); ++i) {
        if (trace.requests[i].tokens >= tokens)
            usable.push_back(i);
    }
    if (usable.size() < count)
        return fail(ErrorCode::kInvalidArgument,
                    std::format("only {} of the {} requests of the trace have {} tokens or more, "
                                "but {} are asked for",
                                usable.size(), trace.requests.size(), tokens, count),
                    "give fewer --requests, or less --steps or --skip");
    // The first places of a shuffle.
    Prng prng(seed);
    for (uint32_t i = 0; i < count; ++i)
        std::swap(usable[i], usable[i + prng.below(usable.size() - i)]);
    usable.resize(count);
    std::ranges::sort(usable);
    return usable;
}

Status check_replay_width(const ReplayModelSpec& spec, int64_t embedding) {
    const ReplayChains chains = replay_chains(spec);
    const int64_t needed = int64_t{chains.requests} * chains.steps + kFreeMin;
    if (needed <= embedding)
        return {};
    return fail(ErrorCode::kInvalidArgument,
                std::format("{} requests of {} steps need an embedding of {} at least, but it has "
                            "{}",
                            chains.requests, chains.steps, needed, embedding),
                "give fewer --requests or --steps, or a wider --embedding");
}

uint32_t replay_vocabulary_min(const ReplayChains& chains) {
    return kByteVocabularyMin + chains.codes();
}

Result<RandomModelReport> write_replay_model(const ReplayModelSpec& spec) {
    BEVY_ASSERT(spec.steps > 0 && !spec.requests.empty());
    ReplayPlan plan(spec);
    RandomModelSpec model = spec.model;
    if (Status applied = plan.apply(model.tensors); !applied)
        return std::unexpected(applied.error());
    model.whole_tokens = plan.chains().texts();
    model.write_shape = [&](MetadataWriter& writer) {
        spec.model.write_shape(writer);
        plan.chains().write(writer);
        writer.set_str("general.description", "replays " + spec.source);
        const std::vector<int32_t> requests(spec.requests.begin(), spec.requests.end());
        writer.set_i32_array("bevy.replay.trace_requests", requests);
    };
    return write_random_model(model);
}

}  // namespace bevy
