// Files with random contents for the tests of this folder, removed with the object.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"

namespace bevy {

inline std::vector<std::byte> random_bytes(uint64_t seed, size_t count) {
    Prng prng(seed);
    std::vector<std::byte> bytes(count);
    for (size_t at = 0; at < count; at += sizeof(uint64_t)) {
        const uint64_t word = prng.next();
        std::memcpy(bytes.data() + at, &word, std::min(sizeof word, count - at));
    }
    return bytes;
}

inline std::string test_directory() {
    std::string directory = testing::TempDir();
    while (directory.size() > 1 && directory.back() == '/')
        directory.pop_back();
    return directory;
}

class TestFile {
public:
    TestFile(const std::string& name, std::vector<std::byte> bytes)
        : TestFile(test_directory(), name, std::move(bytes)) {
        EXPECT_TRUE(written_) << "can't write " << path_;
    }
    TestFile(const TestFile&) = delete;
    TestFile& operator=(const TestFile&) = delete;
    ~TestFile() { unlink(path_.c_str()); }

    // A file without a disk; null where the system has no place for one.
    static std::unique_ptr<TestFile> in_memory(const std::string& name,
                                               std::vector<std::byte> bytes) {
        std::unique_ptr<TestFile> file(new TestFile("/dev/shm", name, std::move(bytes)));
        return file->written_ ? std::move(file) : nullptr;
    }

    const std::string& path() const { return path_; }
    std::span<const std::byte> bytes() const { return bytes_; }
    void truncate(size_t length) const { ASSERT_EQ(::truncate(path_.c_str(), off_t(length)), 0); }

private:
    TestFile(const std::string& directory, const std::string& name, std::vector<std::byte> bytes)
        : path_(directory + "/bevy-storage-" + std::to_string(getpid()) + "-" + name),
          bytes_(std::move(bytes)) {
        const int fd = open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0)
            return;
        size_t done = 0;
        while (done < bytes_.size()) {
            const ssize_t count = write(fd, bytes_.data() + done, bytes_.size() - done);
            if (count <= 0)
                break;
            done += static_cast<size_t>(count);
        }
        // Direct reads of dirty pages would have to wait for them anyway.
        written_ = done == bytes_.size() && fdatasync(fd) == 0;
        close(fd);
    }

    std::string path_;
    std::vector<std::byte> bytes_;
    bool written_ = false;
};

}  // namespace bevy
