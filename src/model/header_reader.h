// Reads the head of a file front to back, in little-endian numbers, without ever believing it.
//
// The first failure sticks: afterwards every read gives zero or nothing, so that a parser may check
// once per record instead of once per number. Uses pread through a small buffer; the file is
// neither mapped nor read beyond what is asked for. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/units.h"

namespace bevy {

// `text` fit for a terminal: control bytes replaced, cut when very long.
std::string printable(std::string_view text);

// An open file; closed when this goes.
class FileHandle {
public:
    FileHandle() = default;
    explicit FileHandle(int fd) : fd_(fd) {}
    FileHandle(FileHandle&& other) noexcept;
    FileHandle& operator=(FileHandle&& other) noexcept;
    ~FileHandle() { close(); }

    int fd() const { return fd_; }
    void close();

private:
    int fd_ = -1;
};

class HeaderReader {
public:
    // No model's head is larger; a file that claims so is damaged. Bounds the memory of a parse.
    static constexpr uint64_t kHeaderBytesMax = 256 * kMiB;

    HeaderReader(FileHandle file, std::string path, uint64_t file_bytes);

    // What is being read, for error messages: "the metadata", "tensor 3 of 20". Must outlive the
    // reads.
    void set_context(std::string context) { context_ = std::move(context); }

    uint8_t u8() { return number<uint8_t>(); }
    uint16_t u16() { return number<uint16_t>(); }
    uint32_t u32() { return number<uint32_t>(); }
    uint64_t u64() { return number<uint64_t>(); }
    // A GGUF string: a 64-bit length, then the bytes.
    std::string str();

    // True if `count` items of at least `bytes_each` can follow; else fails with a message about
    // `what`.
    bool check_count(uint64_t count, uint64_t bytes_each, std::string_view what);

    // Records an error (unless there is one already).
    void fail_with(ErrorCode code, std::string message, std::string hint);

    bool failed() const { return error_.has_value(); }
    const Error& error() const { return *error_; }  // REQUIRES: failed()
    uint64_t position() const { return position_; }
    uint64_t file_bytes() const { return file_bytes_; }
    const std::string& path() const { return path_; }
    const std::string& context() const { return context_; }

private:
    uint64_t limit() const;
    void read(std::byte* out, uint64_t size);
    bool refill();
    void fail_short(std::string_view what);

    template <class T>
    T number() {
        std::byte bytes[sizeof(T)] = {};
        read(bytes, sizeof(T));
        T value = 0;
        if (failed())
            return value;
        for (size_t i = 0; i < sizeof(T); ++i)
            value = static_cast<T>(value | static_cast<T>(static_cast<T>(bytes[i]) << (8 * i)));
        return value;
    }

    FileHandle file_;
    std::string path_;
    std::string context_ = "the header";
    uint64_t file_bytes_;
    uint64_t position_ = 0;  // of the next byte to deliver
    std::vector<std::byte> buffer_;
    size_t buffer_at_ = 0;   // next byte to deliver
    size_t buffer_end_ = 0;  // one past the last valid byte
    std::optional<Error> error_;
};

}  // namespace bevy
