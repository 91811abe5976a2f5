// SeqResult::guesses: the following layers' routers, asked about the hidden state that this layer's
// router saw.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <tuple>
#include <vector>

#include "compute/testing/random_models.h"
#include "compute/testing/sync_driver.h"

namespace bevy {
namespace {

using testing::random_model;
using testing::small_shape;
using testing::SyncDriver;
using testing::TemporaryModel;

constexpr uint32_t kSequences = 3;
constexpr uint32_t kTokens = 8;

using Experts = std::vector<ExpertIndex>;
// What was said about a pass, by (sequence, first position, stage).
struct Said {
    std::map<std::tuple<uint32_t, uint32_t, uint32_t>, Experts> routes, guesses;
};

// All sequences in one group, token after token; with `random` in groups of its choice.
Said run_tokens(SyncDriver& driver, Prng* random = nullptr) {
    Said said;
    Prng tokens(3);
    for (uint32_t position = 0; position < kTokens; position++) {
        std::vector<PassInput> passes;
        for (uint32_t seq = 0; seq < kSequences; seq++)
            passes.push_back(SyncDriver::one_token(
                seq, static_cast<TokenId>(tokens.below(driver.shape().vocabulary)), position));
        driver.on_result = [&](uint32_t stage, const SeqResult& result) {
            const std::tuple key(result.seq.value, position, stage);
            for (const RoutedExpert& routed : result.route)
                said.routes[key].push_back(routed.expert);
            said.guesses[key] = result.guesses;
        };
        driver.run(passes, random);
    }
    driver.on_result = {};
    return said;
}

Result<std::unique_ptr<SyncDriver>> open_with(const TemporaryModel& model,
                                              uint32_t guessed_layers) {
    return SyncDriver::open(model.path(), {.sequences = kSequences,
                                           .context_per_sequence = 64,
                                           .chunk_tokens = 16,
                                           .threads = 2,
                                           .guessed_layers = guessed_layers});
}

// Replaces the numbers of an F32 tensor, if the model has it.
void overwrite(const ModelFile& file, const std::string& name,
               const std::function<float()>& number) {
    const TensorInfo* info = file.find(name);
    if (!info)
        return;
    std::vector<float> numbers(info->bytes / sizeof(float));
    for (float& n : numbers)
        n = number();
    int descriptor = ::open(file.paths()[info->file].c_str(), O_WRONLY | O_CLOEXEC);
    ssize_t written =
        ::pwrite(descriptor, numbers.data(), info->bytes, static_cast<off_t>(info->offset));
    ::close(descriptor);
    ASSERT_EQ(written, static_cast<ssize_t>(info->bytes));
}

// A model whose experts add nothing to the residual stream, and the attention of every other block
// neither; its routers and the norms before them differ a lot between layers.
std::unique_ptr<TemporaryModel> quiet_model(const ModelShape& shape) {
    auto model = random_model(shape, 41, testing::all_of(GGML_TYPE_F32));
    Result<ModelFile> file = ModelFile::open(model->path());
    BEVY_ASSERT(file.has_value());
    Prng random(1);
    for (uint32_t block = 0; block < shape.layers; block++) {
        const std::string prefix = "blk." + std::to_string(block) + ".";
        for (const char* name : {"ffn_norm.weight", "post_attention_norm.weight"})
            overwrite(*file, prefix + name,
                      [&] { return 0.1f * static_cast<float>(1 + random.below(30)); });
        overwrite(*file, prefix + "ffn_gate_inp.bias",
                  [&] { return 0.1f * (static_cast<float>(random.below(20)) - 10.0f); });
        for (const char* name : {"ffn_down_exps.weight", "ffn_down_exps.bias"})
            overwrite(*file, prefix + name, [] { return 0.0f; });
        if (block % 2 == 0)
            continue;
        for (const char* name : {"attn_output.weight", "attn_output.bias"})
            overwrite(*file, prefix + name, [] { return 0.0f; });
    }
    return model;
}

class Guesses : public ::testing::TestWithParam<std::string> {};

TEST_P(Guesses, AreWhatTheLaterRoutersSayToTheSameHiddenState) {
    const ModelShape shape = small_shape(GetParam());
    ASSERT_EQ(shape.layers, 4u);
    auto model = quiet_model(shape);
    auto driver = open_with(*model, 2);
    ASSERT_TRUE(driver) << driver.error().text();
    EXPECT_EQ((*driver)->compute_shape().guessed_layers, 2u);
    const Said said = run_tokens(**driver);
    uint32_t wrong = 0;
    for (const auto& [key, guesses] : said.guesses) {
        const auto& [seq, position, stage] = key;
        SCOPED_TRACE(::testing::PrintToString(key));
        const uint32_t following = stage < 4 ? 3 - stage : 0;
        ASSERT_EQ(guesses.size(), std::min(2u, following) * shape.experts_used);
        if (guesses.empty())
            continue;
        const Experts next(guesses.begin(), guesses.begin() + shape.experts_used);
        const Experts& route = said.routes.at({seq, position, stage + 1});
        // Nothing lies between the routers of layers 0 and 1, and 2 and 3, so they see the same.
        if (stage % 2 == 0)
            EXPECT_EQ(next, route);
        else
            wrong += next != route;
    }
    EXPECT_GT(wrong, 0u) << "attention between two routers changes nothing";
}

TEST_P(Guesses, DoNotDependOnTheSchedule) {
    auto model = random_model(small_shape(GetParam()), 42, testing::all_of(GGML_TYPE_Q4_K));
    auto driver = open_with(*model, 3);
    ASSERT_TRUE(driver) << driver.error().text();
    const Said expected = run_tokens(**driver);
    for (uint64_t seed = 0; seed < 2; seed++) {
        Prng random(seed);
        const Said said = run_tokens(**driver, &random);
        EXPECT_EQ(said.guesses, expected.guesses);
        EXPECT_EQ(said.routes, expected.routes);
    }
}

TEST_P(Guesses, AreMadeWhenAskedForAndOfSingleTokensOnly) {
    auto model = random_model(small_shape(GetParam()), 43, testing::all_of(GGML_TYPE_F16));
    auto none = open_with(*model, 0);
    ASSERT_TRUE(none) << none.error().text();
    for (const auto& [key, guesses] : run_tokens(**none).guesses)
        EXPECT_TRUE(guesses.empty());
    // More layers than there are: as many as follow.
    auto all = open_with(*model, 1000);
    ASSERT_TRUE(all) << all.error().text();
    EXPECT_EQ(run_tokens(**all).guesses.at({0, 0, 0}).size(), 3 * (*all)->shape().experts_used);
    uint32_t stages = 0;
    (*all)->on_result = [&](uint32_t, const SeqResult& result) {
        stages++;
        EXPECT_TRUE(result.guesses.empty());
    };
    (*all)->prefill(0, std::vector<TokenId>(16, 5));
    EXPECT_EQ(stages, 5u);
}

INSTANTIATE_TEST_SUITE_P(Architectures, Guesses, ::testing::Values("qwen3moe", "gpt-oss"),
                         [](const auto& name) { return name.index == 0 ? "Qwen3moe" : "GptOss"; });

}  // namespace
}  // namespace bevy
