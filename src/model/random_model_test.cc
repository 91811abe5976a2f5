#include "model/random_model.h"

#include <ggml.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "model/byte_vocabulary.h"
#include "model/model_file.h"
#include "model/test_files.h"

namespace bevy {
namespace {

constexpr int64_t kWidth = 256;

RandomModelSpec spec_in(const TestFolder& folder, int32_t type = GGML_TYPE_Q8_0) {
    RandomModelSpec spec;
    spec.path = folder / "m.gguf";
    spec.architecture = "qwen3moe";
    spec.name = "random";
    spec.vocabulary = 300;
    spec.tensors = {{"token_embd.weight", {kWidth, 300}, WeightKind::kEmbedding},
                    {"norm", {kWidth}, WeightKind::kNorm},
                    {"router", {kWidth, 5}, WeightKind::kVector, 0},
                    {"bias", {kWidth}, WeightKind::kVector, 0},
                    {"matrix", {kWidth, kWidth}, WeightKind::kMatrix, 0},
                    {"experts", {kWidth, 64, 5}, WeightKind::kExpert, 0},
                    {"narrow", {64, kWidth, 5}, WeightKind::kExpert, 1},
                    {"odd", {33, 7}, WeightKind::kMatrix, 1},
                    // Larger than what is generated weight by weight.
                    {"large", {kWidth, 1024, 5}, WeightKind::kExpert, 1}};
    spec.type_of = [type](const RandomTensor&) { return type; };
    spec.write_shape = [](MetadataWriter& writer) { writer.set_u32("{arch}.block_count", 2); };
    return spec;
}

std::vector<float> floats_of(const ModelFile& model, const char* name) {
    const TensorInfo& info = *model.find(name);
    EXPECT_EQ(info.type, GGML_TYPE_F32);
    const std::string bytes = read_file(model.paths()[info.file]).substr(info.offset, info.bytes);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
}

void expect_moments(const std::vector<float>& values, double mean, double deviation) {
    double sum = 0;
    double squares = 0;
    for (const float value : values) {
        sum += value;
        squares += (value - mean) * (value - mean);
    }
    const auto count = static_cast<double>(values.size());
    EXPECT_NEAR(sum / count, mean, 5 * deviation / std::sqrt(count));
    EXPECT_NEAR(std::sqrt(squares / count), deviation, 5 * deviation / std::sqrt(count));
}

TEST(RandomModel, ScalesWeightsByTheirUse) {
    const TestFolder folder;
    const auto report = write_random_model(spec_in(folder, GGML_TYPE_F32));
    ASSERT_TRUE(report) << report.error().text();
    const auto model = ModelFile::open(folder / "m.gguf");
    ASSERT_TRUE(model) << model.error().text();
    expect_moments(floats_of(*model, "norm"), 1.0, 0.05);
    expect_moments(floats_of(*model, "bias"), 0.0, 0.05);
    for (const char* name : {"router", "matrix", "experts", "token_embd.weight"})
        expect_moments(floats_of(*model, name), 0.0, 1.0 / 16);
    expect_moments(floats_of(*model, "narrow"), 0.0, 1.0 / 8);
    // From the pool: the moments are those of a sample of the pool.
    const std::vector<float> large = floats_of(*model, "large");
    EXPECT_EQ(std::set<float>(large.begin(), large.begin() + kWidth).size() > kWidth / 2, true);
    double squares = 0;
    for (const float value : large)
        squares += double{value} * value;
    EXPECT_NEAR(std::sqrt(squares / static_cast<double>(large.size())), 1.0 / 16, 1e-3);
}

TEST(RandomModel, EveryTypeGivesAFileThatOpens) {
    for (const int32_t type :
         {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0,
          GGML_TYPE_Q5_0, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K, GGML_TYPE_MXFP4}) {
        SCOPED_TRACE(tensor_type_name(type));
        const TestFolder folder;
        const auto report = write_random_model(spec_in(folder, type));
        ASSERT_TRUE(report) << report.error().text();
        const auto model = ModelFile::open(folder / "m.gguf");
        ASSERT_TRUE(model) << model.error().text();
        EXPECT_EQ(model->find("large")->type, type);
        EXPECT_EQ(model->find("router")->type, GGML_TYPE_F32);
        EXPECT_EQ(model->find("norm")->type, GGML_TYPE_F32);
        uint64_t bytes = 0;
        for (const TensorInfo& tensor : model->tensors()) {
            bytes += tensor.bytes;
            const std::string data =
                read_file(folder / "m.gguf").substr(tensor.offset, tensor.bytes);
            EXPECT_TRUE(ggml_validate_row_data(static_cast<ggml_type>(tensor.type), data.data(),
                                               data.size()))
                << tensor.name;
        }
        EXPECT_EQ(report->weight_bytes, bytes);
    }
}

TEST(RandomModel, FallsBackWhereRowsAreTooShort) {
    const TestFolder folder;
    const auto report = write_random_model(spec_in(folder, GGML_TYPE_Q4_K));
    ASSERT_TRUE(report) << report.error().text();
    ASSERT_EQ(report->fallbacks.size(), 2u);
    EXPECT_EQ(report->fallbacks[0].tensor, "narrow");
    EXPECT_EQ(report->fallbacks[0].wanted, GGML_TYPE_Q4_K);
    EXPECT_EQ(report->fallbacks[0].used, GGML_TYPE_Q5_0);
    EXPECT_EQ(report->fallbacks[1].tensor, "odd");
    EXPECT_EQ(report->fallbacks[1].used, GGML_TYPE_F16);
    EXPECT_EQ(fitting_type(GGML_TYPE_Q6_K, 64), GGML_TYPE_Q8_0);
    EXPECT_EQ(fitting_type(GGML_TYPE_Q6_K, 512), GGML_TYPE_Q6_K);
    EXPECT_EQ(fitting_type(GGML_TYPE_MXFP4, 48), GGML_TYPE_F16);
    EXPECT_EQ(fitting_type(GGML_TYPE_F32, 1), GGML_TYPE_F32);
}

TEST(RandomModel, TypesMayDifferBetweenLayers) {
    const TestFolder folder;
    RandomModelSpec spec = spec_in(folder);
    spec.type_of = [](const RandomTensor& tensor) {
        return tensor.layer == 1 ? GGML_TYPE_Q6_K : GGML_TYPE_Q4_K;
    };
    ASSERT_TRUE(write_random_model(spec));
    const auto model = ModelFile::open(folder / "m.gguf");
    ASSERT_TRUE(model);
    EXPECT_EQ(model->find("experts")->type, GGML_TYPE_Q4_K);
    EXPECT_EQ(model->find("large")->type, GGML_TYPE_Q6_K);
}

TEST(RandomModel, SameSeedSameBytes) {
    std::string files[3];
    for (size_t i = 0; i < 3; ++i) {
        const TestFolder folder;
        RandomModelSpec spec = spec_in(folder);
        spec.seed = i < 2 ? 5 : 6;
        ASSERT_TRUE(write_random_model(spec));
        files[i] = read_file(folder / "m.gguf");
    }
    EXPECT_TRUE(files[0] == files[1]);
    EXPECT_FALSE(files[0] == files[2]);
}

TEST(RandomModel, ExpertsDiffer) {
    const TestFolder folder;
    ASSERT_TRUE(write_random_model(spec_in(folder)));
    const auto model = ModelFile::open(folder / "m.gguf");
    ASSERT_TRUE(model);
    for (const char* name : {"experts", "large"}) {
        const TensorInfo& info = *model->find(name);
        const std::string data = read_file(folder / "m.gguf").substr(info.offset, info.bytes);
        std::set<std::string> experts;
        for (size_t e = 0; e < 5; ++e)
            experts.insert(data.substr(e * data.size() / 5, data.size() / 5));
        EXPECT_EQ(experts.size(), 5u) << name;
    }
}

TEST(RandomModel, HasAVocabularyOfDifferentTokens) {
    const TestFolder folder;
    RandomModelSpec spec = spec_in(folder);
    spec.vocabulary = 20'000;
    ASSERT_TRUE(write_random_model(spec));
    const auto model = ModelFile::open(folder / "m.gguf");
    ASSERT_TRUE(model);
    const Metadata& metadata = model->metadata();
    const auto& tokens =
        std::get<std::vector<std::string>>(*metadata.find("tokenizer.ggml.tokens"));
    ASSERT_EQ(tokens.size(), 20'000u);
    EXPECT_EQ(std::set<std::string>(tokens.begin(), tokens.end()).size(), tokens.size());
    EXPECT_EQ(tokens['a'], "a");
    EXPECT_EQ(tokens[' '], "\u0120");
    EXPECT_EQ(tokens['\n'], "\u010a");
    EXPECT_EQ(tokens[0xff], "\u00ff");
    EXPECT_EQ(tokens.back(), "<|im_end|>");
    EXPECT_EQ(metadata.u32("tokenizer.ggml.eos_token_id"), 19'999u);
    EXPECT_EQ(metadata.u32("{arch}.block_count"), 2u);
    EXPECT_EQ(metadata.str("general.name"), "random");
}

TEST(RandomModel, RefusesWhatItCannotWrite) {
    const TestFolder folder;
    const auto error = [](const RandomModelSpec& spec) {
        const auto report = write_random_model(spec);
        return report ? Error{ErrorCode::kNotFound, "written", ""} : report.error();
    };
    RandomModelSpec spec = spec_in(folder, GGML_TYPE_IQ2_XXS);
    EXPECT_EQ(error(spec).code, ErrorCode::kUnsupported);
    EXPECT_TRUE(has_text(error(spec), "IQ2_XXS"));
    EXPECT_TRUE(has_text(error(spec), "MXFP4"));
    spec = spec_in(folder, GGML_TYPE_I32);
    EXPECT_EQ(error(spec).code, ErrorCode::kUnsupported);
    spec = spec_in(folder, 4);
    EXPECT_EQ(error(spec).code, ErrorCode::kUnsupported);
    spec = spec_in(folder);
    spec.vocabulary = kByteVocabularyMin - 1;
    EXPECT_TRUE(has_text(error(spec), "258 tokens is too small"));
    spec = spec_in(folder);
    spec.tensors[2].dims = {0, 5};
    EXPECT_EQ(error(spec).code, ErrorCode::kInvalidArgument);
    spec = spec_in(folder);
    spec.tensors[4].dims = {};
    EXPECT_EQ(error(spec).code, ErrorCode::kInvalidArgument);
    EXPECT_TRUE(folder.names().empty());
}

TEST(RandomModel, ReportsProgressAndCanBeGivenUp) {
    const TestFolder folder;
    RandomModelSpec spec = spec_in(folder);
    uint64_t last = 0;
    uint64_t all = 0;
    spec.on_progress = [&](uint64_t done, uint64_t total) {
        EXPECT_GT(done, last);
        last = done;
        all = total;
        return true;
    };
    const auto report = write_random_model(spec);
    ASSERT_TRUE(report);
    EXPECT_EQ(last, all);
    EXPECT_EQ(all, report->weight_bytes);

    spec.overwrite = true;
    spec.path = folder / "second.gguf";
    spec.on_progress = [](uint64_t, uint64_t) { return false; };
    const auto given_up = write_random_model(spec);
    ASSERT_FALSE(given_up);
    EXPECT_EQ(given_up.error().code, ErrorCode::kCancelled);
    EXPECT_EQ(folder.names(), std::vector<std::string>{"m.gguf"});
}

}  // namespace
}  // namespace bevy
