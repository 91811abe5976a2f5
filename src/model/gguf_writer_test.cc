#include "model/gguf_writer.h"

#include <fcntl.h>
#include <ggml.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>

#include <csignal>
#include <map>

#include "base/prng.h"
#include "model/model_file.h"
#include "model/split_name.h"
#include "model/test_files.h"

namespace bevy {
namespace {

struct TestTensor {
    std::string name;
    int32_t type;
    std::vector<int64_t> dims;
    size_t bytes;
};

const std::vector<TestTensor> kTensors = {
    {"a", GGML_TYPE_F32, {8}, 32},       {"b", GGML_TYPE_Q8_0, {32, 3}, 102},
    {"c", GGML_TYPE_F16, {5, 2, 2}, 40}, {"d", GGML_TYPE_F32, {600'000}, 2'400'000},
    {"e", GGML_TYPE_F32, {1}, 4},
};

std::string weights_of(const TestTensor& tensor) {
    Prng prng(tensor.bytes);
    std::string bytes(tensor.bytes, '\0');
    for (char& byte : bytes)
        byte = static_cast<char>(prng.next());
    return bytes;
}

std::string all_weights() {
    std::string bytes;
    for (const TestTensor& tensor : kTensors)
        bytes += weights_of(tensor);
    return bytes;
}

void add_all(GgufWriter& writer) {
    for (const TestTensor& tensor : kTensors)
        ASSERT_TRUE(writer.add_tensor(tensor.name, tensor.type, tensor.dims));
}

Status write_text(GgufWriter& writer, std::string_view text) {
    return writer.write(std::as_bytes(std::span(text)));
}

// In pieces that fit neither tensors nor buffers.
void write_all(GgufWriter& writer, size_t piece) {
    add_all(writer);
    const Status begun = writer.begin_data();
    ASSERT_TRUE(begun) << begun.error().text();
    const std::string bytes = all_weights();
    for (size_t at = 0; at < bytes.size(); at += piece)
        ASSERT_TRUE(write_text(writer, std::string_view(bytes).substr(at, piece)));
    const Status finished = writer.finish();
    ASSERT_TRUE(finished) << finished.error().text();
}

void expect_weights(const ModelFile& model) {
    ASSERT_EQ(model.tensors().size(), kTensors.size());
    for (const TestTensor& tensor : kTensors) {
        const TensorInfo* info = model.find(tensor.name);
        ASSERT_NE(info, nullptr) << tensor.name;
        EXPECT_EQ(info->type, tensor.type);
        EXPECT_EQ(info->dims, tensor.dims);
        ASSERT_EQ(info->bytes, tensor.bytes);
        const std::string file = read_file(model.paths()[info->file]);
        EXPECT_TRUE(file.substr(info->offset, info->bytes) == weights_of(tensor)) << tensor.name;
    }
}

TEST(GgufWriter, RoundTripsKeysAndWeights) {
    for (const size_t piece : {size_t{100'003}, size_t{3'000'000}}) {
        const TestFolder folder;
        GgufWriter writer({.path = folder / "m.gguf", .architecture = "qwen3moe"});
        writer.set_u32("{arch}.block_count", 7);
        writer.set_f32("{arch}.epsilon", 0.25f);
        writer.set_bool("flag", true);
        writer.set_str("text", "w\u00f6rld");
        const std::vector<std::string> texts = {"a", "", "ccc"};
        writer.set_str_array("texts", texts);
        writer.set_i32_array("numbers", std::vector<int32_t>{-1, 2});
        writer.set_f32_array("floats", std::vector<float>{0.5f});
        write_all(writer, piece);

        EXPECT_EQ(folder.names(), std::vector<std::string>{"m.gguf"});
        const Result<ModelFile> model = ModelFile::open(folder / "m.gguf");
        ASSERT_TRUE(model) << model.error().text();
        expect_weights(*model);
        const Metadata& metadata = model->metadata();
        EXPECT_EQ(metadata.str("general.architecture"), "qwen3moe");
        EXPECT_EQ(metadata.u32("qwen3moe.block_count"), 7u);
        EXPECT_EQ(metadata.f32("qwen3moe.epsilon"), 0.25f);
        EXPECT_EQ(metadata.flag_or("flag", false), true);
        EXPECT_EQ(metadata.str("text"), "w\u00f6rld");
        EXPECT_EQ(*metadata.find("texts"), MetadataValue(texts));
        EXPECT_EQ(*metadata.find("numbers"), MetadataValue(std::vector<int64_t>{-1, 2}));
        EXPECT_EQ(*metadata.find("floats"), MetadataValue(std::vector<double>{0.5}));
    }
}

TEST(GgufWriter, SplitModelsOpenFromAnyShard) {
    const TestFolder folder;
    GgufWriter writer(
        {.path = folder / "m.gguf", .architecture = "qwen3moe", .tensors_per_shard = 2});
    write_all(writer, 1000);
    const std::vector<std::string> names = {"m-00001-of-00003.gguf", "m-00002-of-00003.gguf",
                                            "m-00003-of-00003.gguf"};
    EXPECT_EQ(folder.names(), names);
    for (const std::string& name : names) {
        const Result<ModelFile> model = ModelFile::open(folder / name);
        ASSERT_TRUE(model) << model.error().text();
        EXPECT_EQ(model->paths(), writer.paths());
        EXPECT_EQ(model->metadata().str("general.architecture"), "qwen3moe");
        EXPECT_EQ(model->find("c")->file, 1u);
        expect_weights(*model);
    }
}

TEST(GgufWriter, RefusesBadTensors) {
    GgufWriter writer({.path = "unused", .architecture = "x"});
    const auto error = [&](std::string_view name, int32_t type, std::vector<int64_t> dims) {
        const Status added = writer.add_tensor(name, type, dims);
        return added ? "added" : added.error().message;
    };
    EXPECT_EQ(error("t", GGML_TYPE_F32, {4}), "added");
    EXPECT_EQ(error("t", GGML_TYPE_F32, {4}),
              "tensor 't' can't be written: the name is used twice");
    EXPECT_NE(error("", GGML_TYPE_F32, {4}), "added");
    EXPECT_NE(error(std::string(64, 'x'), GGML_TYPE_F32, {4}), "added");
    EXPECT_NE(error("u", GGML_TYPE_F32, {}), "added");
    EXPECT_NE(error("u", GGML_TYPE_F32, {1, 1, 1, 1, 1}), "added");
    EXPECT_NE(error("u", GGML_TYPE_F32, {0}), "added");
    EXPECT_NE(error("u", GGML_TYPE_Q8_0, {33}), "added");
    EXPECT_NE(error("u", 4, {32}), "added");
    EXPECT_NE(error("u", GGML_TYPE_F32, {int64_t{1} << 40, int64_t{1} << 40}), "added");
}

TEST(GgufWriter, KeepsExistingFilesUnlessAsked) {
    const TestFolder folder;
    write_file(folder / "m.gguf", "precious");
    GgufWriter refused({.path = folder / "m.gguf", .architecture = "x"});
    add_all(refused);
    const Status begun = refused.begin_data();
    ASSERT_FALSE(begun);
    EXPECT_EQ(begun.error().code, ErrorCode::kInvalidArgument);
    EXPECT_TRUE(has_text(begun.error(), "exists already"));
    EXPECT_EQ(read_file(folder / "m.gguf"), "precious");

    GgufWriter allowed({.path = folder / "m.gguf", .architecture = "x", .overwrite = true});
    write_all(allowed, 100'000);
    EXPECT_TRUE(ModelFile::open(folder / "m.gguf"));
}

TEST(GgufWriter, LeavesNothingBehindWhenGivenUp) {
    const TestFolder folder;
    {
        GgufWriter writer({.path = folder / "m.gguf", .architecture = "x", .tensors_per_shard = 2});
        add_all(writer);
        ASSERT_TRUE(writer.begin_data());
        ASSERT_TRUE(write_text(writer, std::string_view(all_weights()).substr(0, 150)));
        EXPECT_EQ(folder.names().size(), 2u);  // the second shard has begun
    }
    EXPECT_TRUE(folder.names().empty());
}

TEST(GgufWriter, ReportsMissingFolders) {
    const TestFolder folder;
    GgufWriter writer({.path = folder / "none/m.gguf", .architecture = "x"});
    add_all(writer);
    const Status begun = writer.begin_data();
    ASSERT_FALSE(begun);
    EXPECT_EQ(begun.error().code, ErrorCode::kIo);
    EXPECT_TRUE(has_text(begun.error(), "make the folder first"));
}

TEST(GgufWriter, RefusesAPartFileInUse) {
    const TestFolder folder;
    const FileHandle other(::open((folder / "m.gguf.part").c_str(), O_RDWR | O_CREAT, 0600));
    ASSERT_EQ(::flock(other.fd(), LOCK_EX | LOCK_NB), 0);
    GgufWriter writer({.path = folder / "m.gguf", .architecture = "x"});
    add_all(writer);
    const Status begun = writer.begin_data();
    ASSERT_FALSE(begun);
    EXPECT_TRUE(has_text(begun.error(), "another process"));
    EXPECT_EQ(folder.names(), std::vector<std::string>{"m.gguf.part"});
}

TEST(GgufWriter, ReportsAFullDiskAndRemovesThePart) {
    const TestFolder folder;
    // The nearest thing to a full disk that a test may have: a limit on the size of files.
    struct rlimit before = {};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    struct rlimit small = before;
    small.rlim_cur = 1'000'000;
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    Status status;
    Status later;
    {
        GgufWriter writer({.path = folder / "m.gguf", .architecture = "x"});
        add_all(writer);
        status = writer.begin_data();
        if (status)
            status = write_text(writer, all_weights());
        // Where the file system could not reserve the room, writing finds out.
        Result<PartFile> unreserved = PartFile::create(folder / "u", false, 0);
        const std::string bytes = all_weights();
        ASSERT_TRUE(unreserved);
        later = unreserved->append(std::as_bytes(std::span(bytes)));
    }
    ::setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, old_handler);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, ErrorCode::kIo);
    EXPECT_TRUE(has_text(status.error(), "m.gguf.part"));
    ASSERT_FALSE(later);
    EXPECT_TRUE(has_text(later.error(), "can't write"));
    EXPECT_TRUE(folder.names().empty());
}

// A split model of three files to damage.
class SplitModel : public testing::Test {
protected:
    void SetUp() override {
        GgufWriter writer(
            {.path = folder_ / "m.gguf", .architecture = "x", .tensors_per_shard = 2});
        write_all(writer, 100'000);
        shards_ = writer.paths();
    }
    Error error(const std::string& path) {
        const Result<ModelFile> model = ModelFile::open(path);
        return model ? Error{ErrorCode::kCancelled, "opened", ""} : model.error();
    }

    TestFolder folder_;
    std::vector<std::string> shards_;
};

TEST_F(SplitModel, NamesAllMissingShards) {
    std::filesystem::remove(shards_[0]);
    std::filesystem::remove(shards_[2]);
    const Error missing = error(shards_[1]);
    EXPECT_EQ(missing.code, ErrorCode::kNotFound);
    EXPECT_TRUE(has_text(missing, "m-00001-of-00003.gguf, m-00003-of-00003.gguf"));
}

TEST_F(SplitModel, RefusesARenamedShard) {
    std::filesystem::rename(shards_[0], folder_ / "renamed.gguf");
    const Error renamed = error(folder_ / "renamed.gguf");
    EXPECT_EQ(renamed.code, ErrorCode::kCorruptFile);
    EXPECT_TRUE(has_text(renamed, "part 1 of 3"));
    EXPECT_TRUE(has_text(renamed, "NAME-00001-of-00003.gguf"));
}

TEST_F(SplitModel, RefusesMixedUpShards) {
    std::filesystem::copy_file(shards_[1], shards_[2],
                               std::filesystem::copy_options::overwrite_existing);
    EXPECT_TRUE(has_text(error(shards_[0]), "part 2 of 3, expected part 3 of 3"));
    write_file(shards_[2], RawGguf().bytes());
    EXPECT_TRUE(has_text(error(shards_[0]), "part 1 of 1, expected part 3 of 3"));
}

TEST_F(SplitModel, NamesATruncatedShard) {
    std::filesystem::resize_file(shards_[1], std::filesystem::file_size(shards_[1]) / 2);
    EXPECT_TRUE(has_text(error(shards_[0]), shards_[1] + "' is truncated: tensor 'd'"));
}

std::string shard(uint16_t number, uint16_t count, uint32_t tensors, const char* tensor) {
    RawGguf file;
    file.key("split.no", GgufType::kU16, RawGguf::number(number));
    file.key("split.count", GgufType::kU16, RawGguf::number(count));
    file.key("split.tensors.count", GgufType::kI32, RawGguf::number(tensors));
    file.tensor(tensor, {8}, GGML_TYPE_F32, 0);
    file.data_bytes = 32;
    return file.bytes();
}

TEST_F(SplitModel, RefusesContradictions) {
    const std::string one = folder_ / "s-00001-of-00002.gguf";
    const std::string two = folder_ / "s-00002-of-00002.gguf";
    write_file(one, shard(0, 2, 2, "a"));
    write_file(two, shard(1, 2, 2, "b"));
    EXPECT_TRUE(has_text(error(one), "opened"));
    write_file(two, shard(1, 2, 2, "a"));
    EXPECT_TRUE(has_text(error(one), "tensor 'a' is both in '" + one + "' and in '" + two));
    write_file(one, shard(0, 2, 3, "a"));
    write_file(two, shard(1, 2, 3, "b"));
    EXPECT_TRUE(has_text(error(one), "has 3 tensors, but its files hold 2"));
    write_file(one, shard(5, 2, 2, "a"));
    EXPECT_TRUE(has_text(error(one), "part 6 of 2"));
}

TEST(SplitName, ParsesAndBuilds) {
    EXPECT_EQ(split_path("d/m", 1, 5), "d/m-00002-of-00005.gguf");
    const auto name = parse_split_name("d/m-00002-of-00005.gguf");
    ASSERT_TRUE(name);
    EXPECT_EQ(name->prefix, "d/m");
    EXPECT_EQ(name->number, 1u);
    EXPECT_EQ(name->count, 5u);
    for (const char* bad :
         {"m.gguf", "m-00000-of-00005.gguf", "m-00006-of-00005.gguf", "m-0001-of-00005.gguf",
          "m-0000x-of-00005.gguf", "m-00001-of-00005.bin", "m_00001-of-00005.gguf", ""})
        EXPECT_FALSE(parse_split_name(bad)) << bad;
}

}  // namespace
}  // namespace bevy
