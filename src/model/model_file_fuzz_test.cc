// Damaged files: whatever happens to their bytes, open() returns.
#include <ggml.h>
#include <gtest/gtest.h>

#include "base/prng.h"
#include "model/model_file.h"
#include "model/test_files.h"

namespace bevy {
namespace {

std::string small_model() {
    using enum GgufType;
    RawGguf file;
    file.key("general.architecture", kString, RawGguf::str("qwen3moe"));
    file.key("general.alignment", kU32, RawGguf::number<uint32_t>(32));
    file.key("qwen3moe.block_count", kU32, RawGguf::number<uint32_t>(2));
    file.key("tokens", kArray,
             RawGguf::number<uint32_t>(8) + RawGguf::number<uint64_t>(2) + RawGguf::str("a") +
                 RawGguf::str("bc"));
    file.key("scores", kArray,
             RawGguf::number<uint32_t>(6) + RawGguf::number<uint64_t>(2) + std::string(8, 'x'));
    file.key("split.count", kU16, RawGguf::number<uint16_t>(1));
    file.tensor("a", {8}, GGML_TYPE_F32, 0);
    file.tensor("b", {256, 2}, GGML_TYPE_Q4_K, 32);
    file.tensor("c", {32, 2, 3}, GGML_TYPE_Q8_0, 320);
    file.data_bytes = 320 + 6 * 34;
    return file.bytes();
}

void damage(std::string& bytes, Prng& prng) {
    static constexpr uint64_t kNumbers[] = {0,          1,          0x7f,       0xff,
                                            0xffff,     0x7fffffff, 0xffffffff, 1ull << 32,
                                            1ull << 62, ~0ull >> 1, ~0ull};
    if (bytes.empty())
        return;
    const size_t at = prng.below(bytes.size());
    switch (prng.below(5)) {
        case 0:
            bytes[at] = static_cast<char>(bytes[at] ^ (1 << prng.below(8)));
            break;
        case 1:
            bytes[at] = static_cast<char>(prng.below(256));
            break;
        case 2:
            bytes.resize(at);
            break;
        case 3:
            bytes.insert(at, prng.between(1, 9), static_cast<char>(prng.below(256)));
            break;
        case 4: {
            const std::string number = RawGguf::number(kNumbers[prng.below(std::size(kNumbers))]);
            bytes.replace(at, std::min<size_t>(8, bytes.size() - at), number);
            break;
        }
    }
}

// What an opened model promises, whatever the file said.
void expect_consistent(const ModelFile& model) {
    for (const TensorInfo& tensor : model.tensors()) {
        EXPECT_FALSE(tensor.dims.empty());
        EXPECT_GT(tensor.bytes, 0u);
        EXPECT_LE(tensor.offset, model.file_bytes());
        EXPECT_LE(tensor.bytes, model.file_bytes() - tensor.offset);
        EXPECT_EQ(model.find(tensor.name), &tensor);
    }
}

TEST(ModelFileFuzz, EveryTruncationIsAnError) {
    const TestFolder folder;
    const std::string path = folder / "model.gguf";
    const std::string bytes = small_model();
    for (size_t size = 0; size < bytes.size(); ++size) {
        write_file(path, std::string_view(bytes).substr(0, size));
        const Result<ModelFile> model = ModelFile::open(path);
        ASSERT_FALSE(model) << size;
        EXPECT_FALSE(model.error().hint.empty()) << model.error().message;
    }
    write_file(path, bytes);
    EXPECT_TRUE(ModelFile::open(path));
}

TEST(ModelFileFuzz, DamagedFilesNeverCrash) {
    const TestFolder folder;
    const std::string path = folder / "model.gguf";
    const std::string original = small_model();
    size_t refused = 0;
    constexpr uint64_t kSeeds = 4000;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
        SCOPED_TRACE(seed);
        Prng prng(seed);
        std::string bytes = original;
        for (uint64_t i = prng.between(1, 3); i > 0; --i)
            damage(bytes, prng);
        write_file(path, bytes);
        const Result<ModelFile> model = ModelFile::open(path);
        if (model)
            expect_consistent(*model);
        else
            ++refused;
    }
    // Damage to weights and names goes unnoticed; most of the rest must not.
    EXPECT_GT(refused, kSeeds / 4);
    EXPECT_LT(refused, kSeeds);
}

}  // namespace
}  // namespace bevy
