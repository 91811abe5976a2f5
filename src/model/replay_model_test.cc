#include "model/replay_model.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "model/byte_vocabulary.h"
#include "model/model_file.h"
#include "model/test_files.h"

namespace bevy {
namespace {

constexpr int64_t kWidth = 64;
constexpr uint32_t kLayers = 2;
constexpr uint32_t kExperts = 6;
constexpr uint32_t kTopK = 2;

// Routes that tell request, token and layer apart.
RouteTrace small_trace(std::vector<uint32_t> lengths) {
    RouteTrace trace{.layers = kLayers, .experts = kExperts, .top_k = kTopK};
    for (uint32_t request = 0; request < lengths.size(); ++request) {
        RouteTrace::Request& added = trace.requests.emplace_back();
        added.tokens = lengths[request];
        for (uint32_t i = 0; i < added.tokens * kLayers; ++i) {
            const uint32_t first = (request + i) % kExperts;
            const uint32_t second =
                (first + 1 + (request + i / kExperts) % (kExperts - 1)) % kExperts;
            added.bytes.push_back(static_cast<uint8_t>(first));
            added.bytes.push_back(static_cast<uint8_t>(second));
        }
    }
    return trace;
}

ReplayModelSpec spec_in(const TestFolder& folder, const RouteTrace& trace) {
    ReplayModelSpec spec;
    spec.trace = &trace;
    spec.steps = 5;
    spec.skip = 1;
    spec.requests = {0, 2};
    spec.source = "a test";
    RandomModelSpec& model = spec.model;
    model.path = folder / "m.gguf";
    model.architecture = "gpt-oss";
    model.vocabulary = replay_vocabulary_min(replay_chains(spec)) + 7;
    model.tensors = {{"token_embd.weight", {kWidth, model.vocabulary}, WeightKind::kEmbedding},
                     {"output.weight", {kWidth, model.vocabulary}, WeightKind::kHead}};
    for (int32_t layer = 0; layer < int32_t{kLayers}; ++layer) {
        const auto add = [&](const char* name, std::vector<int64_t> dims, WeightKind kind) {
            model.tensors.push_back(
                {"blk." + std::to_string(layer) + "." + name, std::move(dims), kind, layer});
        };
        add("ffn_gate_inp.weight", {kWidth, kExperts}, WeightKind::kVector);
        add("ffn_gate_inp.bias", {kExperts}, WeightKind::kVector);
        add("attn_output.weight", {32, kWidth}, WeightKind::kMatrix);
        add("attn_output.bias", {kWidth}, WeightKind::kVector);
        add("ffn_down_exps.weight", {32, kWidth, kExperts}, WeightKind::kExpert);
        add("ffn_down_exps.bias", {kWidth, kExperts}, WeightKind::kVector);
    }
    model.type_of = [](const RandomTensor&) { return static_cast<int32_t>(GGML_TYPE_F32); };
    model.write_shape = [](MetadataWriter& writer) {
        writer.set_u32("{arch}.block_count", kLayers);
    };
    return spec;
}

// All weights of a tensor, row by row.
std::vector<std::vector<float>> rows_of(const ModelFile& model, const std::string& name) {
    const TensorInfo& info = *model.find(name);
    EXPECT_EQ(info.type, GGML_TYPE_F32);
    const std::string bytes = read_file(model.paths()[info.file]).substr(info.offset, info.bytes);
    const auto width = static_cast<size_t>(info.dims[0]);
    std::vector<std::vector<float>> rows(bytes.size() / sizeof(float) / width);
    for (size_t i = 0; i < rows.size(); ++i) {
        rows[i].resize(width);
        std::memcpy(rows[i].data(), bytes.data() + i * width * sizeof(float),
                    width * sizeof(float));
    }
    return rows;
}

// The only place of a row that is not zero; -1: none, -2: several.
int64_t hot(const std::vector<float>& row) {
    int64_t found = -1;
    for (size_t i = 0; i < row.size(); ++i) {
        if (row[i] != 0.0f)
            found = found == -1 ? static_cast<int64_t>(i) : -2;
    }
    return found;
}

TEST(ReplayModel, RoutersNameTheExpertsOfTheTraceInItsOrder) {
    const TestFolder folder;
    const RouteTrace trace = small_trace({6, 3, 8});
    const ReplayModelSpec spec = spec_in(folder, trace);
    const auto report = write_replay_model(spec);
    ASSERT_TRUE(report) << report.error().text();
    const auto model = ModelFile::open(spec.model.path);
    ASSERT_TRUE(model) << model.error().text();
    const ReplayChains chains = replay_chains(spec);
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
        const std::string block = "blk." + std::to_string(layer) + ".";
        const auto router = rows_of(*model, block + "ffn_gate_inp.weight");
        ASSERT_EQ(router.size(), kExperts);
        for (uint32_t code = 0; code < chains.codes(); ++code) {
            std::vector<uint8_t> order;
            for (uint8_t expert = 0; expert < kExperts; ++expert) {
                if (router[expert][code] != 0.0f)
                    order.push_back(expert);
            }
            std::ranges::sort(order, std::ranges::greater{},
                              [&](uint8_t expert) { return router[expert][code]; });
            const ReplayPlace at = chains.place(code);
            EXPECT_TRUE(std::ranges::equal(
                order, trace.route(spec.requests[at.request], spec.skip + at.step, layer)))
                << "code " << code << ", layer " << layer;
        }
        for (const auto& row : router)
            EXPECT_TRUE(std::ranges::all_of(row.begin() + chains.codes(), row.end(),
                                            [](float weight) { return weight == 0.0f; }));
        EXPECT_EQ(hot(rows_of(*model, block + "ffn_gate_inp.bias").front()), -1);
    }
}

TEST(ReplayModel, TheCodeReachesTheHeadUntouched) {
    const TestFolder folder;
    const RouteTrace trace = small_trace({6, 3, 8});
    const ReplayModelSpec spec = spec_in(folder, trace);
    ASSERT_TRUE(write_replay_model(spec));
    const auto model = ModelFile::open(spec.model.path);
    ASSERT_TRUE(model) << model.error().text();
    const ReplayChains chains = replay_chains(spec);
    const uint32_t codes = chains.codes();

    for (const char* name : {"blk.0.attn_output.weight", "blk.1.ffn_down_exps.weight"}) {
        const auto rows = rows_of(*model, name);
        for (size_t i = 0; i < rows.size(); ++i)
            EXPECT_EQ(hot(rows[i]), i % kWidth < codes ? -1 : -2) << name << " row " << i;
    }
    for (const char* name : {"blk.0.attn_output.bias", "blk.1.ffn_down_exps.bias"}) {
        for (const auto& row : rows_of(*model, name)) {
            for (size_t i = 0; i < row.size(); ++i)
                EXPECT_EQ(row[i] == 0.0f, i < codes) << name << " output " << i;
        }
    }

    const auto embedding = rows_of(*model, "token_embd.weight");
    const auto head = rows_of(*model, "output.weight");
    for (uint32_t token = 0; token < embedding.size(); ++token) {
        const auto code = static_cast<uint32_t>(hot(embedding[token]));
        ASSERT_LT(code, codes) << "token " << token;
        // The token that the head gives for this code is the next one of its chain.
        const uint32_t next = chains.token(chains.next(chains.place(code)));
        for (uint32_t other = 0; other < head.size(); ++other)
            EXPECT_EQ(head[other][code] > 0.0f, other == next);
    }
    for (uint32_t token = 0; token < head.size(); ++token)
        EXPECT_EQ(hot(head[token]) >= 0, chains.find(token).has_value());
}

TEST(ReplayModel, WritesItsChainsAndTheirSource) {
    const TestFolder folder;
    const RouteTrace trace = small_trace({6, 3, 8});
    const ReplayModelSpec spec = spec_in(folder, trace);
    ASSERT_TRUE(write_replay_model(spec));
    const auto model = ModelFile::open(spec.model.path);
    ASSERT_TRUE(model) << model.error().text();
    const auto chains = ReplayChains::read(model->metadata());
    ASSERT_TRUE(chains) << chains.error().text();
    EXPECT_EQ(chains->requests, 2u);
    EXPECT_EQ(chains->steps, 5u);
    EXPECT_EQ(*model->metadata().str("general.description"), "replays a test");
    const MetadataValue* drawn = model->metadata().find("bevy.replay.trace_requests");
    ASSERT_NE(drawn, nullptr);
    EXPECT_EQ(std::get<std::vector<int64_t>>(*drawn), (std::vector<int64_t>{0, 2}));
}

TEST(ReplayModel, CodesHaveToFitTheEmbedding) {
    const TestFolder folder;
    const RouteTrace trace = small_trace({40, 40, 40});
    ReplayModelSpec spec = spec_in(folder, trace);
    spec.steps = 17;  // 2 x 17 + 32 > 64
    const auto report = write_replay_model(spec);
    ASSERT_FALSE(report);
    EXPECT_TRUE(has_text(report.error(), "2 requests of 17 steps need an embedding of 66"));
    EXPECT_TRUE(has_text(report.error(), "it has 64"));
    EXPECT_TRUE(folder.names().empty());
}

TEST(ReplayModel, DrawsRequestsThatAreLongEnough) {
    const RouteTrace trace = small_trace({3, 9, 10, 11, 12, 9, 2});
    const auto all = choose_requests(trace, 3, 10, 1);
    ASSERT_TRUE(all) << all.error().text();
    EXPECT_EQ(*all, (std::vector<uint32_t>{2, 3, 4}));
    std::set<std::vector<uint32_t>> seen;
    for (uint64_t seed = 0; seed < 50; ++seed) {
        const auto drawn = choose_requests(trace, 2, 9, seed);
        ASSERT_TRUE(drawn) << drawn.error().text();
        EXPECT_TRUE(std::ranges::is_sorted(*drawn));
        EXPECT_NE((*drawn)[0], (*drawn)[1]);
        for (const uint32_t request : *drawn)
            EXPECT_GE(trace.requests[request].tokens, 9u);
        seen.insert(*drawn);
    }
    EXPECT_EQ(seen.size(), 10u);  // every pair of five
    const auto none = choose_requests(trace, 4, 10, 1);
    ASSERT_FALSE(none);
    EXPECT_TRUE(has_text(none.error(), "only 3 of the 7 requests"));
}

TEST(ReplayChains, TokensAndTextsNameTheSamePlaces) {
    const ReplayChains chains{3, 12};
    for (uint32_t code = 0; code < chains.codes(); ++code) {
        const ReplayPlace place = chains.place(code);
        EXPECT_EQ(chains.code(place), code);
        EXPECT_EQ(chains.find(chains.token(place)), place);
        EXPECT_EQ(chains.code_of_token(chains.token(place)), code);
        const std::string text = ReplayChains::text(place) + "rest";
        std::string_view rest = text;
        EXPECT_EQ(chains.take(rest), place);
        EXPECT_EQ(rest, "rest");
    }
    EXPECT_EQ(chains.next({1, 11}), (ReplayPlace{1, 0}));
    EXPECT_EQ(chains.texts()[13], "<1:1>");
    EXPECT_FALSE(chains.find(kByteVocabularyFirstWhole - 1));
    EXPECT_FALSE(chains.find(kByteVocabularyFirstWhole + chains.codes()));
    for (const char* text : {"", "<", "<1", "<1:", "<1:2", "<3:0>", "<0:12>", "<:1>", "<1:>",
                             "1:1>", " <1:1>", "<-1:1>", "<99999999999:1>"}) {
        std::string_view rest = text;
        EXPECT_FALSE(chains.take(rest)) << text;
        EXPECT_EQ(rest, text);
    }
}

TEST(ReplayChains, OtherModelsAreRefused) {
    const Metadata none("x.gguf", {});
    const auto chains = ReplayChains::read(none);
    ASSERT_FALSE(chains);
    EXPECT_TRUE(has_text(chains.error(), "'x.gguf' is not a replay model"));
    const Metadata empty(
        "x.gguf", {{"bevy.replay.requests", uint64_t{0}}, {"bevy.replay.steps", uint64_t{4}}});
    EXPECT_FALSE(ReplayChains::read(empty));
    const Metadata huge("x.gguf", {{"bevy.replay.requests", uint64_t{1} << 20},
                                   {"bevy.replay.steps", uint64_t{1} << 20}});
    EXPECT_FALSE(ReplayChains::read(huge));
}

}  // namespace
}  // namespace bevy
