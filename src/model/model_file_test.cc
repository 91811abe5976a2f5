#include "model/model_file.h"

#include <ggml.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <functional>

#include "model/tensor_types.h"
#include "model/test_files.h"

namespace bevy {
namespace {

RawGguf two_tensors() {
    RawGguf file;
    file.key("general.architecture", GgufType::kString, RawGguf::str("qwen3moe"));
    file.tensor("first", {8}, GGML_TYPE_F32, 0).tensor("second", {32, 2}, GGML_TYPE_Q8_0, 32);
    file.data_bytes = 32 + 2 * 34;
    return file;
}

Error open_error(const TestFolder& folder, std::string_view bytes) {
    write_file(folder / "model.gguf", bytes);
    const Result<ModelFile> model = ModelFile::open(folder / "model.gguf");
    if (model)
        return Error{ErrorCode::kInvalidArgument, "opened without an error", ""};
    return model.error();
}

void expect_error(const std::string& bytes, ErrorCode code, std::string_view part) {
    const TestFolder folder;
    const Error error = open_error(folder, bytes);
    EXPECT_EQ(error.code, code) << error.text();
    EXPECT_TRUE(has_text(error, part));
    EXPECT_TRUE(has_text(error, folder / "model.gguf"));
    EXPECT_FALSE(error.hint.empty());
}

void expect_corrupt(const RawGguf& file, std::string_view part) {
    expect_error(file.bytes(), ErrorCode::kCorruptFile, part);
}

TEST(ModelFile, OpensTensorsAndKeys) {
    const TestFolder folder;
    const std::string bytes = two_tensors().bytes();
    write_file(folder / "model.gguf", bytes);
    const Result<ModelFile> model = ModelFile::open(folder / "model.gguf");
    ASSERT_TRUE(model) << model.error().text();
    EXPECT_EQ(model->metadata().str("general.architecture"), "qwen3moe");
    EXPECT_EQ(model->metadata().path(), folder / "model.gguf");
    EXPECT_EQ(model->file_bytes(), bytes.size());
    ASSERT_EQ(model->tensors().size(), 2u);
    const TensorInfo* second = model->find("second");
    ASSERT_NE(second, nullptr);
    EXPECT_EQ(second->dims, (std::vector<int64_t>{32, 2}));
    EXPECT_EQ(second->type, GGML_TYPE_Q8_0);
    EXPECT_EQ(second->bytes, 68u);
    EXPECT_EQ(second->offset, bytes.size() - 68);
    EXPECT_EQ(model->find("third"), nullptr);
}

TEST(ModelFile, ReadsEveryTypeOfValue) {
    RawGguf file;
    file.key("u8", GgufType::kU8, RawGguf::number<uint8_t>(200));
    file.key("i8", GgufType::kI8, RawGguf::number<uint8_t>(0xff));
    file.key("u16", GgufType::kU16, RawGguf::number<uint16_t>(60000));
    file.key("i16", GgufType::kI16, RawGguf::number<uint16_t>(0xfffe));
    file.key("i32", GgufType::kI32, RawGguf::number<uint32_t>(0xfffffffd));
    file.key("u64", GgufType::kU64, RawGguf::number<uint64_t>(1ull << 40));
    file.key("i64", GgufType::kI64, RawGguf::number<uint64_t>(~0ull));
    file.key("f32", GgufType::kF32, RawGguf::number(std::bit_cast<uint32_t>(0.5f)));
    file.key("f64", GgufType::kF64, RawGguf::number(std::bit_cast<uint64_t>(0.25)));
    file.key("bool", GgufType::kBool, RawGguf::number<uint8_t>(1));
    file.key("strings", GgufType::kArray,
             RawGguf::number<uint32_t>(8) + RawGguf::number<uint64_t>(2) + RawGguf::str("a") +
                 RawGguf::str(""));
    file.key("bools", GgufType::kArray,
             RawGguf::number<uint32_t>(7) + RawGguf::number<uint64_t>(2) + std::string("\1\0", 2));
    const TestFolder folder;
    write_file(folder / "m", file.bytes());
    const Result<ModelFile> model = ModelFile::open(folder / "m");
    ASSERT_TRUE(model) << model.error().text();
    const auto value = [&](const char* key) { return *model->metadata().find(key); };
    EXPECT_EQ(value("u8"), MetadataValue(uint64_t{200}));
    EXPECT_EQ(value("i8"), MetadataValue(int64_t{-1}));
    EXPECT_EQ(value("u16"), MetadataValue(uint64_t{60000}));
    EXPECT_EQ(value("i16"), MetadataValue(int64_t{-2}));
    EXPECT_EQ(value("i32"), MetadataValue(int64_t{-3}));
    EXPECT_EQ(value("u64"), MetadataValue(uint64_t{1} << 40));
    EXPECT_EQ(value("i64"), MetadataValue(int64_t{-1}));
    EXPECT_EQ(value("f32"), MetadataValue(0.5));
    EXPECT_EQ(value("f64"), MetadataValue(0.25));
    EXPECT_EQ(value("bool"), MetadataValue(true));
    EXPECT_EQ(value("strings"), MetadataValue(std::vector<std::string>{"a", ""}));
    EXPECT_EQ(value("bools"), MetadataValue(std::vector<bool>{true, false}));
}

TEST(ModelFile, OpensTheDemoModel) {
    const Result<ModelFile> model =
        ModelFile::open(std::string(BEVY_SOURCE_DIR) + "/models/bevy-tiny-moe-Q8_0.gguf");
    ASSERT_TRUE(model) << model.error().text();
    EXPECT_EQ(model->metadata().u32("{arch}.expert_count"), 32u);
    EXPECT_EQ(model->tensors().size(), 75u);
    EXPECT_EQ(model->find("blk.5.ffn_down_exps.weight")->dims, (std::vector<int64_t>{64, 256, 32}));
}

TEST(ModelFile, RefusesWhatIsNoFile) {
    const TestFolder folder;
    const auto missing = ModelFile::open(folder / "nothing.gguf");
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
    EXPECT_TRUE(has_text(missing.error(), "nothing.gguf' does not exist"));

    const auto directory = ModelFile::open(folder / ".");
    ASSERT_FALSE(directory);
    EXPECT_TRUE(has_text(directory.error(), "is a folder"));

    ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
    const auto pipe = ModelFile::open(folder / "pipe");
    ASSERT_FALSE(pipe);
    EXPECT_TRUE(has_text(pipe.error(), "not a regular file"));
}

TEST(ModelFile, RefusesWithoutPermission) {
    const TestFolder folder;
    write_file(folder / "model.gguf", two_tensors().bytes());
    ASSERT_EQ(::chmod((folder / "model.gguf").c_str(), 0), 0);
    if (::access((folder / "model.gguf").c_str(), R_OK) == 0)
        GTEST_SKIP() << "this user may read everything";
    const auto model = ModelFile::open(folder / "model.gguf");
    ASSERT_FALSE(model);
    EXPECT_EQ(model.error().code, ErrorCode::kIo);
    EXPECT_TRUE(has_text(model.error(), "no permission"));
}

TEST(ModelFile, SaysWhatAnotherFileLooksLike) {
    using enum ErrorCode;
    expect_error("", kCorruptFile, "is empty");
    expect_error("hello, this is some text", kUnsupported, "does not begin with 'GGUF'");
    expect_error(RawGguf::number<uint64_t>(200) + "{\"__metadata__\"", kUnsupported, "safetensors");
    expect_error("PK\x03\x04 and more", kUnsupported, "zip archive");
    expect_error("<!DOCTYPE html><html>", kUnsupported, "web page");
    expect_error("version https://git-lfs.github.com/spec/v1\n", kUnsupported, "git lfs pull");
    expect_error(std::string(4096, '\0'), kUnsupported, "begins with zeros");
    expect_error("GG", kUnsupported, "does not begin with 'GGUF'");
}

TEST(ModelFile, RefusesVersionsAndByteOrder) {
    RawGguf file = two_tensors();
    file.version = 1;
    expect_error(file.bytes(), ErrorCode::kUnsupported, "GGUF version 1");
    file.version = 4;
    expect_error(file.bytes(), ErrorCode::kUnsupported, "GGUF version 4");
    file.version = 0x03000000;
    expect_error(file.bytes(), ErrorCode::kUnsupported, "big-endian");
    file.version = 2;
    const TestFolder folder;
    EXPECT_TRUE(has_text(open_error(folder, file.bytes()), "opened without an error"));
}

TEST(ModelFile, RefusesImpossibleCounts) {
    RawGguf file = two_tensors();
    file.key_count = 1ull << 60;
    expect_corrupt(file, "1152921504606846976 metadata keys reaches beyond the end");
    file = two_tensors();
    file.tensor_count = ~0ull;
    expect_corrupt(file, "18446744073709551615 tensors reaches beyond the end");
}

TEST(ModelFile, RefusesBadKeys) {
    using enum GgufType;
    const std::string one = RawGguf::number<uint32_t>(1);
    const auto with = [](std::string_view name, GgufType type, const std::string& value) {
        return two_tensors().key(name, type, value);
    };
    expect_corrupt(with("k", kU32, one).key("k", kU32, one), "metadata key 'k' is there twice");
    expect_corrupt(with("k", static_cast<GgufType>(13), one), "unknown type 13");
    expect_corrupt(with("k\n", kU32, one), "impossible name 'k?'");
    expect_corrupt(with("", kU32, one), "impossible name");
    expect_corrupt(with("k", kString, RawGguf::number<uint64_t>(1ull << 62)), "a string of");
    expect_corrupt(with("k", kArray, RawGguf::number<uint32_t>(9) + RawGguf::number<uint64_t>(1)),
                   "array of arrays");
    expect_corrupt(with("k", kArray, RawGguf::number<uint32_t>(99) + RawGguf::number<uint64_t>(1)),
                   "array of unknown type 99");
    expect_corrupt(
        with("k", kArray, RawGguf::number<uint32_t>(4) + RawGguf::number<uint64_t>(1ull << 61)),
        "2305843009213693952 array elements");
    const std::string key(kGgufKeyAlignment);
    expect_corrupt(with(key, kU32, RawGguf::number<uint32_t>(48)), "is 48, not a power of two");
    expect_corrupt(with(key, kU32, RawGguf::number<uint32_t>(0)), "is 0, not a power of two");
    expect_corrupt(with(key, kU64, RawGguf::number<uint64_t>(32)), "not a 32-bit unsigned integer");
}

TEST(ModelFile, RefusesBadTensors) {
    const auto with = [](std::string_view name, std::initializer_list<int64_t> dims, uint32_t type,
                         uint64_t offset) {
        RawGguf file = two_tensors().tensor(name, dims, type, offset);
        file.data_bytes += 1024;
        return file;
    };
    constexpr int64_t kLarge = int64_t{1} << 40;
    expect_corrupt(with("first", {8}, GGML_TYPE_F32, 128), "tensor 'first' is there twice");
    expect_corrupt(with("", {8}, GGML_TYPE_F32, 128), "impossible name");
    expect_corrupt(with(std::string(64, 'x'), {8}, GGML_TYPE_F32, 128), "impossible name");
    expect_corrupt(with("t", {1, 1, 1, 1, 1}, GGML_TYPE_F32, 128), "has 5 dimensions");
    expect_corrupt(with("t", {0, 4}, GGML_TYPE_F32, 128), "has a dimension of 0");
    expect_corrupt(with("t", {4, -2}, GGML_TYPE_F32, 128), "has a dimension of -2");
    expect_corrupt(with("t", {kLarge, kLarge}, GGML_TYPE_F32, 128), "larger than any memory");
    expect_corrupt(with("t", {kLarge, 1 << 22}, GGML_TYPE_F32, 128), "larger than any memory");
    expect_corrupt(with("t", {33}, GGML_TYPE_Q8_0, 128), "rows of 33 weights, but Q8_0");
    expect_corrupt(with("t", {8}, GGML_TYPE_F32, 130), "begins at 130, not at a multiple of 32");
    expect_corrupt(with("t", {8}, GGML_TYPE_F32, 96), "overlaps tensor 't'");
    expect_corrupt(with("t", {8}, GGML_TYPE_F32, ~0ull - 31), "impossible place");
    for (const uint32_t unknown : {4u, 31u, 1000u, 0xffffffffu})
        expect_error(with("t", {8}, unknown, 128).bytes(), ErrorCode::kUnsupported,
                     "tensor 't' has the unknown type");
}

TEST(ModelFile, SaysHowMuchIsMissing) {
    const std::string bytes = two_tensors().bytes();
    expect_error(bytes.substr(0, bytes.size() - 1), ErrorCode::kCorruptFile,
                 "is truncated: tensor 'second' needs bytes up to " + std::to_string(bytes.size()) +
                     " but the file has " + std::to_string(bytes.size() - 1));
    expect_error(bytes.substr(0, 30), ErrorCode::kCorruptFile, "truncated or damaged");
}

TEST(ModelFile, DropsTrailingOnes) {
    RawGguf file;
    file.tensor("t", {8, 1, 1}, GGML_TYPE_F32, 0).tensor("scalar", {}, GGML_TYPE_F32, 32);
    file.data_bytes = 36;
    const TestFolder folder;
    write_file(folder / "m", file.bytes());
    const Result<ModelFile> model = ModelFile::open(folder / "m");
    ASSERT_TRUE(model) << model.error().text();
    EXPECT_EQ(model->tensors()[0].dims, (std::vector<int64_t>{8}));
    EXPECT_EQ(model->tensors()[1].dims, (std::vector<int64_t>{1}));
}

TEST(TensorTypes, NamesAndSizes) {
    EXPECT_EQ(tensor_type_name(GGML_TYPE_Q4_K), "Q4_K");
    EXPECT_EQ(tensor_type_name(GGML_TYPE_MXFP4), "MXFP4");
    EXPECT_EQ(tensor_type_name(4), "type 4");
    EXPECT_EQ(tensor_type_name(-1), "type -1");
    EXPECT_EQ(find_tensor_type("q4_K")->id, GGML_TYPE_Q4_K);
    EXPECT_EQ(find_tensor_type("bf16")->id, GGML_TYPE_BF16);
    EXPECT_FALSE(find_tensor_type("q9"));
    EXPECT_EQ(find_tensor_type(GGML_TYPE_Q6_K)->row_bytes(512), 420u);
}

}  // namespace
}  // namespace bevy
