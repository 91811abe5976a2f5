// Models that make-model derives, computed: an inflated one gives the logits of its source to the
// bit, and a replay model leads libllama along its chains with the routes of the trace.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "compute/backend.h"
#include "compute/testing/random_models.h"
#include "compute/testing/sync_driver.h"
#include "ggml-backend.h"
#include "llama.h"
#include "model/inflated_model.h"
#include "model/replay_model.h"

namespace bevy {
namespace {

using testing::all_of;
using testing::random_model;
using testing::small_shape;
using testing::SyncDriver;
using testing::TemporaryModel;

// Logits after a prompt and after each of a few tokens.
std::vector<std::vector<float>> logits_of(const std::string& path) {
    auto driver = SyncDriver::open(path, {.sequences = 1,
                                          .context_per_sequence = 128,
                                          .chunk_tokens = 16,
                                          .prefill_lanes = 1,
                                          .threads = 2});
    EXPECT_TRUE(driver) << driver.error().text();
    std::vector<std::vector<float>> all;
    const auto keep = [&] {
        const std::span<const float> logits = (*driver)->logits(0);
        all.emplace_back(logits.begin(), logits.end());
    };
    Prng random(5);
    std::vector<TokenId> tokens;
    for (int i = 0; i < 21; ++i)
        tokens.push_back(static_cast<TokenId>(random.below((*driver)->shape().vocabulary)));
    (*driver)->prefill(0, tokens);
    keep();
    for (uint32_t i = 0; i < 4; ++i) {
        (*driver)->run({SyncDriver::one_token(0, tokens[i], 21 + i)});
        keep();
    }
    return all;
}

struct InflatedCase {
    const char* architecture;
    ggml_type type;
};

class InflatedLogits : public ::testing::TestWithParam<InflatedCase> {};

TEST_P(InflatedLogits, AreThoseOfTheSource) {
    const auto model =
        random_model(small_shape(GetParam().architecture), 21, all_of(GetParam().type));
    const TemporaryModel wide(model->path() + ".wide.gguf");
    const auto written = write_inflated_model(
        {.model = model->path(), .expert_ff = 256 * 5, .path = wide.path(), .overwrite = true});
    ASSERT_TRUE(written) << written.error().text();
    ASSERT_GT(std::filesystem::file_size(wide.path()),
              2 * std::filesystem::file_size(model->path()));
    const auto expected = logits_of(model->path());
    const auto got = logits_of(wide.path());
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i].size(), expected[i].size());
        EXPECT_EQ(std::memcmp(got[i].data(), expected[i].data(), got[i].size() * sizeof(float)), 0)
            << "token " << i;
    }
}

INSTANTIATE_TEST_SUITE_P(All, InflatedLogits,
                         ::testing::Values(InflatedCase{"qwen3moe", GGML_TYPE_Q8_0},
                                           InflatedCase{"qwen3moe", GGML_TYPE_Q4_0},
                                           InflatedCase{"qwen3moe", GGML_TYPE_Q4_K},
                                           InflatedCase{"qwen3moe", GGML_TYPE_Q6_K},
                                           InflatedCase{"qwen3moe", GGML_TYPE_BF16},
                                           InflatedCase{"gpt-oss", GGML_TYPE_MXFP4},
                                           InflatedCase{"gpt-oss", GGML_TYPE_Q8_0}),
                         [](const auto& kind) {
                             std::string name = std::string(kind.param.architecture) + "_" +
                                                ggml_type_name(kind.param.type);
                             std::ranges::replace(name, '-', '_');
                             return name;
                         });

constexpr uint32_t kChains = 8;
constexpr uint32_t kSteps = 12;

RouteTrace random_trace(const ModelShape& shape, uint64_t seed) {
    RouteTrace trace{.layers = shape.layers, .experts = shape.experts, .top_k = shape.experts_used};
    Prng random(seed);
    for (uint32_t request = 0; request < kChains; ++request) {
        RouteTrace::Request& added = trace.requests.emplace_back();
        added.tokens = kSteps;
        for (uint32_t route = 0; route < kSteps * shape.layers; ++route) {
            std::vector<uint8_t> experts;
            while (experts.size() < shape.experts_used) {
                const auto expert = static_cast<uint8_t>(random.below(shape.experts));
                if (!std::ranges::contains(experts, expert))
                    experts.push_back(expert);
            }
            added.bytes.insert(added.bytes.end(), experts.begin(), experts.end());
        }
    }
    return trace;
}

// The library, with a batch of one token per sequence at a time; sees what its routers choose.
class Llama {
public:
    explicit Llama(const std::string& path) {
        load_backends();
        llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
        llama_model_params model = llama_model_default_params();
        model.n_gpu_layers = 0;
        model_.reset(llama_model_load_from_file(path.c_str(), model));
        if (!model_)
            return;
        llama_context_params context = llama_context_default_params();
        context.n_ctx = 64 * kChains;
        context.n_seq_max = kChains;
        context.n_threads = context.n_threads_batch = 2;
        context.no_perf = true;
        context.cb_eval = &Llama::on_tensor;
        context.cb_eval_user_data = this;
        context_.reset(llama_init_from_model(model_.get(), context));
    }

    bool loaded() const { return context_ != nullptr; }
    const llama_vocab* vocabulary() const { return llama_model_get_vocab(model_.get()); }

    // The most likely token of every sequence after its own of `tokens`.
    std::vector<TokenId> decode(const std::vector<TokenId>& tokens, int32_t position) {
        routes.clear();
        llama_batch batch = llama_batch_init(static_cast<int32_t>(tokens.size()), 0, 1);
        for (size_t i = 0; i < tokens.size(); ++i) {
            batch.token[i] = tokens[i];
            batch.pos[i] = position;
            batch.n_seq_id[i] = 1;
            batch.seq_id[i][0] = static_cast<llama_seq_id>(i);
            batch.logits[i] = 1;
        }
        batch.n_tokens = static_cast<int32_t>(tokens.size());
        EXPECT_EQ(llama_decode(context_.get(), batch), 0);
        llama_batch_free(batch);
        const auto count = static_cast<size_t>(llama_vocab_n_tokens(vocabulary()));
        std::vector<TokenId> next;
        for (size_t i = 0; i < tokens.size(); ++i) {
            const std::span<const float> logits(
                llama_get_logits_ith(context_.get(), static_cast<int32_t>(i)), count);
            next.push_back(static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin()));
        }
        return next;
    }

    // Of the last decode: experts of every sequence by layer, in router order.
    std::map<std::string, std::vector<std::vector<int32_t>>> routes;

private:
    static bool on_tensor(ggml_tensor* tensor, bool ask, void* self) {
        const std::string_view name = ggml_get_name(tensor);
        if (!name.starts_with("ffn_moe_topk-"))
            return !ask;
        if (ask)
            return true;
        // A view of the sorted experts: its rows lie apart.
        auto& rows = static_cast<Llama*>(self)->routes[std::string(name.substr(13))];
        for (int64_t row = 0; row < tensor->ne[1]; ++row) {
            rows.emplace_back(static_cast<size_t>(tensor->ne[0]));
            ggml_backend_tensor_get(tensor, rows.back().data(),
                                    static_cast<size_t>(row) * tensor->nb[1],
                                    rows.back().size() * sizeof(int32_t));
        }
        return true;
    }

    struct Deleter {
        void operator()(llama_model* model) const { llama_model_free(model); }
        void operator()(llama_context* context) const { llama_free(context); }
    };
    std::unique_ptr<llama_model, Deleter> model_;
    std::unique_ptr<llama_context, Deleter> context_;
};

class OracleReplay : public ::testing::TestWithParam<InflatedCase> {
protected:
    // Writes the model of `trace` to `path`.
    static void write(const ModelShape& shape, const RouteTrace& trace, const std::string& path) {
        ReplayModelSpec spec;
        spec.trace = &trace;
        spec.steps = kSteps;
        for (uint32_t request = 0; request < kChains; ++request)
            spec.requests.push_back(request);
        spec.source = "a test";
        RandomModelSpec& model = spec.model;
        model.path = path;
        model.overwrite = true;
        model.architecture = shape.architecture;
        model.vocabulary = shape.vocabulary;
        const Architecture& architecture = **find_architecture(shape.architecture);
        for (const TensorSpec& tensor : architecture.tensors(shape))
            model.tensors.push_back(
                {tensor.name, tensor.dims, testing::weight_kind(tensor.role), tensor.layer});
        model.type_of = all_of(GetParam().type);
        model.write_shape = [&](MetadataWriter& writer) {
            architecture.write_shape(shape, writer);
        };
        const auto report = write_replay_model(spec);
        ASSERT_TRUE(report) << report.error().text();
    }
};

TEST_P(OracleReplay, LibllamaFollowsTheChainsWithTheRoutesOfTheTrace) {
    const ModelShape shape = small_shape(GetParam().architecture);
    const RouteTrace trace = random_trace(shape, 4);
    const TemporaryModel file((std::filesystem::temp_directory_path() /
                               ("bevy-replay-" + std::to_string(::getpid()) + ".gguf"))
                                  .string());
    ASSERT_NO_FATAL_FAILURE(write(shape, trace, file.path()));
    Llama llama(file.path());
    ASSERT_TRUE(llama.loaded());
    const ReplayChains chains{kChains, kSteps};
    // Twice round, every chain from a step of its own.
    std::vector<ReplayPlace> places;
    std::vector<TokenId> tokens;
    for (uint32_t i = 0; i < kChains; ++i) {
        places.push_back({i, i});
        tokens.push_back(static_cast<TokenId>(chains.token(places.back())));
        EXPECT_FALSE(llama_vocab_is_eog(llama.vocabulary(), tokens.back()));
    }
    for (int32_t position = 0; position < 2 * int32_t{kSteps}; ++position) {
        tokens = llama.decode(tokens, position);
        for (uint32_t i = 0; i < kChains; ++i) {
            for (uint32_t layer = 0; layer < shape.layers; ++layer) {
                const auto& rows = llama.routes[std::to_string(layer)];
                ASSERT_EQ(rows.size(), kChains);
                EXPECT_TRUE(std::ranges::equal(rows[i], trace.route(i, places[i].step, layer)))
                    << "chain " << i << ", step " << places[i].step << ", layer " << layer;
            }
            places[i] = chains.next(places[i]);
            ASSERT_EQ(tokens[i], static_cast<TokenId>(chains.token(places[i])))
                << "chain " << i << ", position " << position;
        }
    }
    EXPECT_FALSE(llama_vocab_get_add_bos(llama.vocabulary()));
}

INSTANTIATE_TEST_SUITE_P(All, OracleReplay,
                         ::testing::Values(InflatedCase{"qwen3moe", GGML_TYPE_Q4_K},
                                           InflatedCase{"qwen3moe", GGML_TYPE_Q4_0},
                                           InflatedCase{"gpt-oss", GGML_TYPE_MXFP4},
                                           InflatedCase{"gpt-oss", GGML_TYPE_Q8_0}),
                         [](const auto& kind) {
                             std::string name = std::string(kind.param.architecture) + "_" +
                                                ggml_type_name(kind.param.type);
                             std::ranges::replace(name, '-', '_');
                             return name;
                         });

}  // namespace
}  // namespace bevy
