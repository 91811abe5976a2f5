// For the tests of this folder: a folder that goes with the test, and GGUF files made byte by byte,
// wrong ones included.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/gguf_format.h"

namespace bevy {

class TestFolder {
public:
    TestFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "bevy_model_XXXXXX").string();
        if (!::mkdtemp(name.data()))
            std::abort();
        path_ = name;
    }
    TestFolder(const TestFolder&) = delete;
    TestFolder& operator=(const TestFolder&) = delete;
    ~TestFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }

    std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
    std::vector<std::string> names() const {
        std::vector<std::string> found;
        for (const auto& entry : std::filesystem::directory_iterator(path_))
            found.push_back(entry.path().filename().string());
        std::ranges::sort(found);
        return found;
    }

private:
    std::string path_;
};

inline void write_file(const std::string& path, std::string_view bytes) {
    // A new file, because cutting an old one short makes some file systems wait for the disk.
    std::filesystem::remove(path);
    std::ofstream(path, std::ios::binary).write(bytes.data(), std::ssize(bytes));
}

inline std::string read_file(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

inline testing::AssertionResult has_text(const Error& error, std::string_view part) {
    if (error.text().find(part) != std::string::npos)
        return testing::AssertionSuccess();
    return testing::AssertionFailure() << "no '" << part << "' in: " << error.text();
}

// Writes whatever it is told, in the format's encoding.
class RawGguf {
public:
    template <class T>
    static std::string number(T value) {
        std::string out;
        for (size_t i = 0; i < sizeof(T); ++i)
            out += static_cast<char>(static_cast<uint8_t>(value >> (8 * i)));
        return out;
    }
    static std::string str(std::string_view text) {
        return number<uint64_t>(text.size()) + std::string(text);
    }

    RawGguf& key(std::string_view name, GgufType type, const std::string& value) {
        keys_ += str(name) + number(static_cast<uint32_t>(type)) + value;
        ++key_count;
        return *this;
    }
    RawGguf& tensor(std::string_view name, std::initializer_list<int64_t> dims, uint32_t type,
                    uint64_t offset) {
        tensors_ += str(name) + number(static_cast<uint32_t>(dims.size()));
        for (const int64_t dim : dims)
            tensors_ += number(static_cast<uint64_t>(dim));
        tensors_ += number(type) + number(offset);
        ++tensor_count;
        return *this;
    }
    std::string bytes() const {
        std::string out = magic + number(version) + number(tensor_count) + number(key_count);
        out += keys_ + tensors_;
        out.append((32 - out.size() % 32) % 32, '\0');
        return out + std::string(data_bytes, 'w');
    }

    std::string magic = "GGUF";
    uint32_t version = 3;
    uint64_t tensor_count = 0;
    uint64_t key_count = 0;
    size_t data_bytes = 0;

private:
    std::string keys_;
    std::string tensors_;
};

}  // namespace bevy
