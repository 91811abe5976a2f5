#include "model/part_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/assert.h"
#include "base/units.h"

namespace bevy {

namespace {

constexpr size_t kBufferBytes = 1 * kMiB;

std::string folder_of(const std::string& path) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos)
        return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

std::unexpected<Error> fail_file(const std::string& path, std::string_view what, int error_number) {
    std::string hint;
    switch (error_number) {
        case ENOSPC:
        case EDQUOT:
            hint = "free space on that disk, or write to another one";
            break;
        case EFBIG:
            hint =
                "the file system or a limit (ulimit -f) allows no file of this size; write to "
                "another disk, or split the model";
            break;
        case ENOENT:
        case ENOTDIR:
            hint = "make the folder first";
            break;
        case EACCES:
        case EPERM:
        case EROFS:
            hint = "choose a folder that you may write to";
            break;
        default:
            hint = "check the disk and the file system";
    }
    return fail(ErrorCode::kIo,
                "can't " + std::string(what) + " '" + path + "': " + std::strerror(error_number),
                std::move(hint));
}

}  // namespace

PartFile::PartFile(FileHandle file, std::string path)
    : file_(std::move(file)), path_(std::move(path)), part_path_(path_ + ".part") {
    buffer_.reserve(kBufferBytes);
}

PartFile::PartFile(PartFile&& other) noexcept
    : file_(std::move(other.file_)),
      path_(std::move(other.path_)),
      part_path_(std::exchange(other.part_path_, {})),
      buffer_(std::move(other.buffer_)) {}

PartFile::~PartFile() {
    if (!part_path_.empty())
        ::unlink(part_path_.c_str());
}

std::unexpected<Error> PartFile::fail_io(std::string_view what, int error_number) const {
    return fail_file(part_path_, what, error_number);
}

Result<PartFile> PartFile::create(const std::string& path, bool overwrite,
                                  uint64_t bytes_expected) {
    struct stat info = {};
    if (::lstat(path.c_str(), &info) == 0) {
        if (!overwrite)
            return fail(ErrorCode::kInvalidArgument, "'" + path + "' exists already",
                        "choose another name, or allow overwriting");
        if (!S_ISREG(info.st_mode))
            return fail(ErrorCode::kInvalidArgument, "'" + path + "' is not a regular file",
                        "choose another name");
    }
    const std::string part_path = path + ".part";
    FileHandle handle(::open(part_path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
    if (handle.fd() < 0)
        return fail_file(part_path, "create", errno);
    // A left-over part file may be reused, but not one that somebody is writing. The lock goes with
    // the process.
    if (::flock(handle.fd(), LOCK_EX | LOCK_NB) != 0)
        return fail(ErrorCode::kInvalidArgument,
                    "'" + part_path + "' is being written by another process",
                    "wait for it to end, or choose another name");
    PartFile file(std::move(handle), path);
    if (::ftruncate(file.file_.fd(), 0) != 0)
        return file.fail_io("write", errno);
    if (bytes_expected > 0 &&
        ::fallocate(file.file_.fd(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes_expected)) !=
            0 &&
        (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
        return file.fail_io("write " + format_bytes(bytes_expected) + " to", errno);
    return file;
}

Status PartFile::append(std::span<const std::byte> bytes) {
    if (buffer_.size() + bytes.size() <= kBufferBytes) {
        buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
        return {};
    }
    if (Status flushed = flush(); !flushed)
        return flushed;
    if (bytes.size() < kBufferBytes) {
        buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
        return {};
    }
    return write_through(bytes);
}

Status PartFile::flush() {
    Status written = write_through(buffer_);
    buffer_.clear();
    return written;
}

Status PartFile::write_through(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
        const ssize_t written = ::write(file_.fd(), bytes.data(), bytes.size());
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return fail_io("write", errno);
        bytes = bytes.subspan(static_cast<size_t>(written));
    }
    return {};
}

Status PartFile::sync() {
    if (Status flushed = flush(); !flushed)
        return flushed;
    // Gives back what was reserved and not needed.
    const off_t size = ::lseek(file_.fd(), 0, SEEK_CUR);
    if (size < 0 || ::ftruncate(file_.fd(), size) != 0 || ::fsync(file_.fd()) != 0)
        return fail_io("write", errno);
    return {};
}

Status PartFile::publish() {
    BEVY_ASSERT(buffer_.empty() && !part_path_.empty());
    if (std::rename(part_path_.c_str(), path_.c_str()) != 0)
        return fail_io("rename", errno);
    part_path_.clear();
    file_.close();
    // The new name itself is only on the disk once the folder is.
    const FileHandle folder(::open(folder_of(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (folder.fd() >= 0)
        ::fsync(folder.fd());
    return {};
}

}  // namespace bevy
