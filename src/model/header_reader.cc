#include "model/header_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace bevy {

namespace {

constexpr size_t kBufferBytes = 64 * kKiB;
constexpr size_t kPrintableMax = 96;

}  // namespace

std::string printable(std::string_view text) {
    std::string result(text.substr(0, kPrintableMax));
    for (char& c : result) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
            c = '?';
    }
    if (text.size() > kPrintableMax)
        result += "...";
    return result;
}

FileHandle::FileHandle(FileHandle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileHandle& FileHandle::operator=(FileHandle&& other) noexcept {
    if (this != &other) {
        close();
        fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
}

void FileHandle::close() {
    if (fd_ >= 0)
        ::close(fd_);
    fd_ = -1;
}

HeaderReader::HeaderReader(FileHandle file, std::string path, uint64_t file_bytes)
    : file_(std::move(file)),
      path_(std::move(path)),
      file_bytes_(file_bytes),
      buffer_(kBufferBytes) {}

uint64_t HeaderReader::limit() const {
    return std::min(file_bytes_, kHeaderBytesMax);
}

void HeaderReader::fail_with(ErrorCode code, std::string message, std::string hint) {
    if (!error_)
        error_ = Error{code, std::move(message), std::move(hint)};
}

void HeaderReader::fail_short(std::string_view what) {
    if (file_bytes_ > kHeaderBytesMax) {
        fail_with(ErrorCode::kCorruptFile,
                  "'" + path_ + "' is damaged: in " + context_ + ", " + std::string(what) +
                      " does not fit into the " + format_bytes(kHeaderBytesMax) +
                      " that a header may take",
                  "download it again");
        return;
    }
    fail_with(ErrorCode::kCorruptFile,
              "'" + path_ + "' is truncated or damaged: in " + context_ + ", " + std::string(what) +
                  " reaches beyond the end of the file (" + std::to_string(file_bytes_) + " bytes)",
              "download it again");
}

bool HeaderReader::check_count(uint64_t count, uint64_t bytes_each, std::string_view what) {
    if (failed())
        return false;
    if (count > (limit() - position_) / bytes_each)
        fail_short(std::to_string(count) + " " + std::string(what));
    return !failed();
}

std::string HeaderReader::str() {
    const uint64_t length = u64();
    if (failed())
        return {};
    if (length > limit() - position_) {
        fail_short("a string of " + std::to_string(length) + " bytes");
        return {};
    }
    std::string text(length, '\0');
    read(reinterpret_cast<std::byte*>(text.data()), length);
    return failed() ? std::string{} : text;
}

bool HeaderReader::refill() {
    const auto wanted =
        static_cast<size_t>(std::min<uint64_t>(buffer_.size(), limit() - position_));
    ssize_t got = 0;
    do {
        got = ::pread(file_.fd(), buffer_.data(), wanted, static_cast<off_t>(position_));
    } while (got < 0 && errno == EINTR);
    if (got < 0) {
        fail_with(ErrorCode::kIo, "can't read '" + path_ + "': " + std::strerror(errno),
                  "check the disk and the file system");
        return false;
    }
    if (got == 0) {
        fail_with(ErrorCode::kCorruptFile, "'" + path_ + "' became shorter while it was read",
                  "wait until the file is complete");
        return false;
    }
    buffer_at_ = 0;
    buffer_end_ = static_cast<size_t>(got);
    return true;
}

void HeaderReader::read(std::byte* out, uint64_t size) {
    if (failed())
        return;
    if (size > limit() - position_) {
        fail_short(std::to_string(size) + " bytes");
        return;
    }
    while (size > 0) {
        if (buffer_at_ == buffer_end_ && !refill())
            return;
        const auto run = static_cast<size_t>(std::min<uint64_t>(size, buffer_end_ - buffer_at_));
        std::memcpy(out, buffer_.data() + buffer_at_, run);
        buffer_at_ += run;
        position_ += run;
        out += run;
        size -= run;
    }
}

}  // namespace bevy
