// libllama runs the same file; our logits must be its logits.
//
// With the same chunks and cache types, and without libllama's repacked weights and rotated caches,
// both engines feed the same numbers to the same ggml kernels, and quantised models have agreed bit
// by bit. The bounds leave room for other CPUs: F32 differs in the order of a few sums (seen:
// 3e-13; allowed: 1e-6 of the logits' energy); where activations are quantised to eight bits, one
// differently rounded number is worth about 1e-5 per product. 1e-3 is above that and far below what
// a wrong formula costs.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <memory>

#include "compute/backend.h"
#include "compute/testing/random_models.h"
#include "compute/testing/sync_driver.h"
#include "llama.h"

namespace bevy {
namespace {

using testing::all_of;
using testing::random_model;
using testing::small_shape;
using testing::SyncDriver;
using testing::TemporaryModel;

constexpr double kFloatError = 1e-6;
constexpr double kQuantisedError = 1e-3;

class Oracle {
public:
    Oracle(const std::string& path, const ComputeOptions& options, ggml_type kv_type) {
        load_backends();
        ::setenv("LLAMA_ATTN_ROT_DISABLE", "1", 1);
        llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
        llama_model_params model = llama_model_default_params();
        model.n_gpu_layers = 0;
        model.use_extra_bufts = false;
        model_.reset(llama_model_load_from_file(path.c_str(), model));
        if (!model_)
            return;
        llama_context_params context = llama_context_default_params();
        context.n_ctx = options.context_per_sequence;
        context.n_batch = context.n_ubatch = options.chunk_tokens;
        context.n_threads = context.n_threads_batch = static_cast<int32_t>(options.threads);
        // With flash attention, libllama rounds an F32 cache to F16 before use.
        context.flash_attn_type = kv_type == GGML_TYPE_F32 ? LLAMA_FLASH_ATTN_TYPE_DISABLED
                                                           : LLAMA_FLASH_ATTN_TYPE_ENABLED;
        context.type_k = context.type_v = kv_type;
        context.swa_full = true;
        context.no_perf = true;
        context_.reset(llama_init_from_model(model_.get(), context));
    }

    bool loaded() const { return context_ != nullptr; }

    // Logits of the last token.
    std::span<const float> decode(std::vector<TokenId> tokens) {
        llama_batch batch = llama_batch_get_one(tokens.data(), static_cast<int32_t>(tokens.size()));
        EXPECT_EQ(llama_decode(context_.get(), batch), 0);
        int32_t count = llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));
        return {llama_get_logits_ith(context_.get(), -1), static_cast<size_t>(count)};
    }

private:
    struct Deleter {
        void operator()(llama_model* model) const { llama_model_free(model); }
        void operator()(llama_context* context) const { llama_free(context); }
    };
    std::unique_ptr<llama_model, Deleter> model_;
    std::unique_ptr<llama_context, Deleter> context_;
};

// Energy of the difference over energy of the expected values.
double normalised_error(std::span<const float> got, std::span<const float> expected) {
    double error = 0, energy = 0;
    for (size_t i = 0; i < expected.size(); i++) {
        double difference = double{got[i]} - double{expected[i]};
        error += difference * difference;
        energy += double{expected[i]} * double{expected[i]};
    }
    return got.size() == expected.size() && energy > 0 ? error / energy : INFINITY;
}

TokenId greedy(std::span<const float> logits) {
    return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
}

std::vector<TokenId> random_tokens(Prng& random, size_t count, uint32_t vocabulary) {
    std::vector<TokenId> tokens;
    for (size_t i = 0; i < count; i++)
        tokens.push_back(static_cast<TokenId>(random.below(vocabulary)));
    return tokens;
}

// Three chunks (the last one cut short) and eight tokens; the largest error of all logits seen
// counts.
void compare(const std::string& path, const std::string& kv_name, ggml_type kv_type, double limit) {
    ComputeOptions options{.sequences = 2,
                           .context_per_sequence = 256,
                           .chunk_tokens = 32,
                           .prefill_lanes = 1,
                           .threads = 2,
                           .type_k = kv_name,
                           .type_v = kv_name};
    auto driver = SyncDriver::open(path, options);
    ASSERT_TRUE(driver) << driver.error().text();
    Oracle oracle(path, options, kv_type);
    ASSERT_TRUE(oracle.loaded());
    Prng random(7);
    std::vector<TokenId> tokens = random_tokens(random, 77, (*driver)->shape().vocabulary);
    const uint32_t seq = 1;
    double worst = 0;
    uint32_t position = 0;
    for (PassInput& pass : (*driver)->chunks(seq, tokens)) {
        pass.wants_logits = true;
        std::span<const float> expected = oracle.decode(pass.tokens);
        position += static_cast<uint32_t>(pass.tokens.size());
        (*driver)->run({pass});
        worst = std::max(worst, normalised_error((*driver)->logits(seq), expected));
    }
    for (int i = 0; i < 8; i++) {
        TokenId token = greedy((*driver)->logits(seq));
        std::span<const float> expected = oracle.decode({token});
        (*driver)->run({SyncDriver::one_token(seq, token, position++)});
        worst = std::max(worst, normalised_error((*driver)->logits(seq), expected));
    }
    EXPECT_LT(worst, limit);
    ::testing::Test::RecordProperty("normalised_error", std::to_string(worst));
}

struct ShapeCase {
    const char* architecture;
    uint32_t experts;
    uint32_t used;
    bool tied_head;
};

class OracleShapes : public ::testing::TestWithParam<ShapeCase> {};

TEST_P(OracleShapes, AgreeInF32) {
    ModelShape shape = small_shape(GetParam().architecture);
    shape.experts = GetParam().experts;
    shape.experts_used = GetParam().used;
    shape.tied_head = GetParam().tied_head;
    auto model = random_model(shape, 11, all_of(GGML_TYPE_F32));
    compare(model->path(), "f32", GGML_TYPE_F32, kFloatError);
}

INSTANTIATE_TEST_SUITE_P(
    All, OracleShapes,
    ::testing::Values(ShapeCase{"qwen3moe", 3, 1, false}, ShapeCase{"qwen3moe", 5, 5, true},
                      ShapeCase{"qwen3moe", 32, 4, false}, ShapeCase{"qwen3moe", 60, 8, true},
                      ShapeCase{"gpt-oss", 3, 1, false}, ShapeCase{"gpt-oss", 5, 2, false},
                      ShapeCase{"gpt-oss", 32, 4, false}, ShapeCase{"gpt-oss", 60, 8, false}));

class OracleTypes : public ::testing::TestWithParam<std::tuple<std::string, ggml_type>> {};

TEST_P(OracleTypes, AgreeUpToQuantisationNoise) {
    auto [architecture, type] = GetParam();
    auto model = random_model(small_shape(architecture), 12, all_of(type));
    compare(model->path(), "f16", GGML_TYPE_F16, kQuantisedError);
}

INSTANTIATE_TEST_SUITE_P(All, OracleTypes,
                         ::testing::Combine(::testing::Values("qwen3moe", "gpt-oss"),
                                            ::testing::Values(GGML_TYPE_F16, GGML_TYPE_BF16,
                                                              GGML_TYPE_Q8_0, GGML_TYPE_Q4_0,
                                                              GGML_TYPE_Q4_K, GGML_TYPE_Q6_K,
                                                              GGML_TYPE_MXFP4)));

class OracleMixed : public ::testing::TestWithParam<std::string> {};

TEST_P(OracleMixed, TypesMayDifferFromLayerToLayer) {
    auto model = random_model(small_shape(GetParam()), 13, [](const RandomTensor& tensor) {
        if (tensor.layer < 0)
            return static_cast<int32_t>(GGML_TYPE_Q6_K);
        constexpr ggml_type kTypes[] = {GGML_TYPE_Q4_K, GGML_TYPE_Q8_0, GGML_TYPE_F16};
        return static_cast<int32_t>(
            kTypes[(static_cast<size_t>(tensor.layer) + tensor.name.size()) % 3]);
    });
    compare(model->path(), "f16", GGML_TYPE_F16, kQuantisedError);
}

TEST_P(OracleMixed, QuantisedAttentionMemory) {
    auto model = random_model(small_shape(GetParam()), 14, all_of(GGML_TYPE_F32));
    compare(model->path(), "q8_0", GGML_TYPE_Q8_0, kQuantisedError);
}

INSTANTIATE_TEST_SUITE_P(All, OracleMixed, ::testing::Values("qwen3moe", "gpt-oss"));

TEST(OracleDemoModel, SixtyFourGreedyTokensAgree) {
    const std::string path = BEVY_SOURCE_DIR "/models/bevy-tiny-moe-Q8_0.gguf";
    ComputeOptions options{.sequences = 1,
                           .context_per_sequence = 256,
                           .chunk_tokens = 16,
                           .prefill_lanes = 1,
                           .threads = 2};
    auto driver = SyncDriver::open(path, options);
    ASSERT_TRUE(driver) << driver.error().text();
    Oracle oracle(path, options, GGML_TYPE_F16);
    ASSERT_TRUE(oracle.loaded());
    Prng random(3);
    std::vector<TokenId> tokens = random_tokens(random, 40, (*driver)->shape().vocabulary);
    (*driver)->prefill(0, tokens);
    TokenId expected = 0;
    for (const PassInput& pass : (*driver)->chunks(0, tokens))
        expected = greedy(oracle.decode(pass.tokens));
    auto position = static_cast<uint32_t>(tokens.size());
    for (int i = 0; i < 64; i++) {
        TokenId token = greedy((*driver)->logits(0));
        ASSERT_EQ(token, expected) << "at token " << i;
        expected = greedy(oracle.decode({token}));
        (*driver)->run({SyncDriver::one_token(0, token, position++)});
    }
}

}  // namespace
}  // namespace bevy
