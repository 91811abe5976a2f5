// Hostile files, the whole way that a model takes when it is opened: header, shape, tensors and the
// vocabulary in libllama. The keys of the demo model are damaged one by one, keeping the file a
// GGUF file, because that is what gets past the first checks. A child process opens each file, so
// that an abort inside a library is a failed test. BEVY_FUZZ_COUNT sets how many files are tried.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/prng.h"
#include "cli/session.h"

namespace bevy {
namespace {

const std::string kModel = BEVY_SOURCE_DIR "/models/bevy-tiny-moe-Q8_0.gguf";
constexpr uint64_t kCountDefault = 150;
constexpr uint32_t kString = 8;
constexpr uint32_t kArray = 9;
constexpr uint32_t kTypes = 13;

size_t size_of_type(uint32_t type) {
    static constexpr size_t kSizes[kTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    return kSizes[type];
}

template <class T>
std::string encode(T value) {
    return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string encode_text(const std::string& text) {
    return encode<uint64_t>(text.size()) + text;
}

struct Key {
    std::string name;
    uint32_t type = 0;
    uint32_t element_type = 0;          // of an array
    std::vector<std::string> elements;  // encoded; one when it is not an array
};

// The head of a GGUF file: its keys apart, the tensor list as bytes.
class Header {
public:
    explicit Header(const std::string& path) {
        std::ifstream in(path, std::ios::binary);
        bytes_.assign(std::istreambuf_iterator<char>(in), {});
        file_bytes_ = bytes_.size();
        at_ = 8;
        tensors_ = take<uint64_t>();
        const auto keys = take<uint64_t>();
        for (uint64_t i = 0; i < keys; ++i)
            keys_.push_back(take_key());
        const size_t start = at_;
        for (uint64_t i = 0; i < tensors_; ++i) {
            take_text();
            at_ += size_t{8} * take<uint32_t>() + 12;
        }
        tensor_list_ = bytes_.substr(start, at_ - start);
        data_bytes_ = file_bytes_ - at_;
        bytes_.clear();
    }

    std::vector<Key>& keys() { return keys_; }

    // Weights are a hole in the file.
    void write(const std::string& path) const {
        std::string out = "GGUF" + encode<uint32_t>(3) + encode(tensors_);
        out += encode<uint64_t>(keys_.size());
        for (const Key& key : keys_) {
            out += encode_text(key.name) + encode(key.type);
            if (key.type == kArray)
                out += encode(key.element_type) + encode<uint64_t>(key.elements.size());
            for (const std::string& element : key.elements)
                out += element;
        }
        out += tensor_list_;
        const size_t size = out.size() + data_bytes_ + 64;
        std::ofstream(path, std::ios::binary) << out;
        std::filesystem::resize_file(path, size);
    }

private:
    template <class T>
    T take() {
        T value{};
        std::memcpy(&value, bytes_.data() + at_, sizeof value);
        at_ += sizeof value;
        return value;
    }
    std::string take_text() {
        const auto size = take<uint64_t>();
        at_ += size;
        return bytes_.substr(at_ - size, size);
    }
    std::string take_element(uint32_t type) {
        if (type == kString)
            return encode_text(take_text());
        at_ += size_of_type(type);
        return bytes_.substr(at_ - size_of_type(type), size_of_type(type));
    }
    Key take_key() {
        Key key;
        key.name = take_text();
        key.type = take<uint32_t>();
        uint64_t count = 1;
        key.element_type = key.type;
        if (key.type == kArray) {
            key.element_type = take<uint32_t>();
            count = take<uint64_t>();
        }
        for (uint64_t i = 0; i < count; ++i)
            key.elements.push_back(take_element(key.element_type));
        return key;
    }

    std::string bytes_;
    size_t at_ = 0;
    size_t file_bytes_ = 0;
    size_t data_bytes_ = 0;
    uint64_t tensors_ = 0;
    std::vector<Key> keys_;
    std::string tensor_list_;
};

std::string odd_text(Prng& prng) {
    static const std::vector<std::string> texts = {
        "",       "\xff\xfe",      "gpt2",         "llama",   "bert",    "t5",
        "rwkv",   "plamo2",        "no_vocab",     "none",    "default", "llama-bpe",
        "qwen2",  "gpt-4o",        "deepseek-llm", "tekken",  "falcon",  "a b",
        " ",      "x y z",         "gemma4",       "<0xZZ>",  "<0x",     "<|im_end|>",
        "\n",     "unknown",       "qwen3moe",     "gpt-oss", "llama4",  "{arch}",
        "\u0120", "hunyuan-dense", "kimi-k2",      "{{",      "{%",      "chameleon"};
    if (prng.below(12) == 0)
        return std::string(prng.below(70'000), static_cast<char>(prng.below(256)));
    return texts[prng.below(texts.size())];
}

std::string odd_value(uint32_t type, Prng& prng) {
    static constexpr uint64_t kNumbers[] = {
        0,          1,          2,          7,          255,        4095,       4096, 0x7fffffff,
        0x80000000, 0xffffffff, 0x7fc00000, 0x7f800000, 1ull << 62, ~0ull >> 1, ~0ull};
    if (type == kString)
        return encode_text(odd_text(prng));
    if (type == 7)
        return std::string(1, static_cast<char>(prng.below(2)));
    return encode(kNumbers[prng.below(std::size(kNumbers))]).substr(0, size_of_type(type));
}

uint32_t any_scalar_type(Prng& prng) {
    const auto type = static_cast<uint32_t>(prng.below(kTypes));
    return type == kArray ? kString : type;
}

void retype(Key& key, Prng& prng) {
    key.element_type = any_scalar_type(prng);
    const bool array = key.type == kArray;
    if (!array || prng.below(4) == 0)
        key.type = array ? key.element_type : prng.below(4) == 0 ? kArray : key.element_type;
    if (key.type != kArray)
        key.elements.resize(1);
    for (std::string& element : key.elements)
        element = odd_value(key.element_type, prng);
}

void resize(Key& key, Prng& prng) {
    static constexpr uint64_t kCounts[] = {0, 1, 2, 3, 100, 4095, 4097, 9000};
    const size_t count = kCounts[prng.below(std::size(kCounts))];
    while (key.elements.size() < count)
        key.elements.push_back(odd_value(key.element_type, prng));
    key.elements.resize(count);
}

void add_key(std::vector<Key>& keys, Prng& prng) {
    static const std::vector<std::string> names = {"scores",
                                                   "token_type",
                                                   "precompiled_charsmap",
                                                   "bos_token_id",
                                                   "eos_token_id",
                                                   "eot_token_id",
                                                   "eom_token_id",
                                                   "unknown_token_id",
                                                   "padding_token_id",
                                                   "mask_token_id",
                                                   "fim_pre_token_id",
                                                   "add_bos_token",
                                                   "add_eos_token",
                                                   "add_sep_token",
                                                   "seperator_token_id",
                                                   "token_type_count",
                                                   "pre",
                                                   "merges",
                                                   "remove_extra_whitespaces",
                                                   "suppress_tokens",
                                                   "normalizer.lowercase",
                                                   "add_space_prefix",
                                                   "tokens",
                                                   "fim_suf_token_id"};
    Key key;
    key.name = "tokenizer.ggml." + names[prng.below(names.size())];
    std::erase_if(keys, [&](const Key& other) { return other.name == key.name; });
    key.element_type = any_scalar_type(prng);
    key.type = key.element_type;
    key.elements.push_back(odd_value(key.type, prng));
    if (prng.below(2) == 0) {
        key.type = kArray;
        resize(key, prng);
    }
    keys.push_back(std::move(key));
}

void set_text(std::vector<Key>& keys, const std::string& name, const std::string& text) {
    std::erase_if(keys, [&](const Key& other) { return other.name == name; });
    keys.push_back({name, kString, kString, {encode_text(text)}});
}

void damage(std::vector<Key>& keys, Prng& prng) {
    const size_t at = prng.below(keys.size());
    Key& key = keys[at];
    switch (prng.below(8)) {
        case 0:
            keys.erase(keys.begin() + static_cast<ptrdiff_t>(at));
            break;
        case 1:
            retype(key, prng);
            break;
        case 2:
            if (key.type == kArray)
                resize(key, prng);
            else
                key.elements[0] = odd_value(key.type, prng);
            break;
        case 3:
        case 4:
            for (uint64_t n = prng.between(1, 40); n > 0 && !key.elements.empty(); --n)
                key.elements[prng.below(key.elements.size())] = odd_value(key.element_type, prng);
            break;
        case 5:
            set_text(keys, "tokenizer.ggml.model", odd_text(prng));
            break;
        case 6:
            set_text(keys, "tokenizer.ggml.pre", odd_text(prng));
            break;
        case 7:
            add_key(keys, prng);
            break;
    }
}

// In the child: 0 when opened, 1 when refused.
int open_all(const std::string& path) {
    const Result<OpenedModel> model = open_model(path);
    if (!model)
        return 1;
    const auto vocabulary = open_vocabulary(*model);
    if (!vocabulary)
        return 1;
    for (TokenId token = -1; token <= static_cast<TokenId>((*vocabulary)->vocabulary_size());
         ++token)
        (*vocabulary)->piece(token, token % 2 == 0);
    for (const char* text :
         {"Once upon a time\n", "<|im_start|>x", "\xff\xc3 \xe2\x82\xac 123", ""})
        (*vocabulary)->encode(text, true, true);
    (*vocabulary)->bos_text();
    (*vocabulary)->chat_template();
    return 0;
}

TEST(OpenFuzz, DamagedKeysNeverCrash) {
    const char* wanted = std::getenv("BEVY_FUZZ_COUNT");
    const char* first = std::getenv("BEVY_FUZZ_FIRST");
    const uint64_t count = wanted ? std::strtoull(wanted, nullptr, 10) : kCountDefault;
    const uint64_t begin = first ? std::strtoull(first, nullptr, 10) : 0;
    const std::string path = testing::TempDir() + "bevy-open-fuzz-" + std::to_string(getpid());
    const Header original(kModel);
    uint64_t opened = 0;
    for (uint64_t seed = begin; seed < begin + count; ++seed) {
        Prng prng(seed);
        Header header = original;
        // The first stays whole.
        for (uint64_t n = seed == begin ? 0 : prng.between(1, 3); n > 0; --n)
            damage(header.keys(), prng);
        header.write(path);
        const pid_t child = fork();
        ASSERT_GE(child, 0);
        if (child == 0) {
            alarm(60);
            _exit(open_all(path));
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 1)
            << "seed " << seed << ", signal " << WTERMSIG(status);
        opened += WIFEXITED(status) && WEXITSTATUS(status) == 0;
        if (seed == begin) {
            ASSERT_EQ(opened, 1u) << "the undamaged file must open";
        }
    }
    std::filesystem::remove(path);
    EXPECT_LT(opened, count) << "nothing was refused";
}

}  // namespace
}  // namespace bevy
