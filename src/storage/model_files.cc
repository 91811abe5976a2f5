#include "storage/model_files.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdlib>
#include <format>
#include <memory>
#include <optional>
#include <utility>

#include "base/units.h"
#include "storage/errno_text.h"

namespace bevy {

namespace {

constexpr uint64_t kBlockMax = kMiB;

// What one file says about reads past the page cache.
struct DirectProbe {
    FileDescriptor fd;    // valid when it agrees
    uint64_t block = 0;   // then the unit of reads
    std::string refusal;  // else why not
};

DirectProbe refused(std::string why) {
    return {FileDescriptor(), 0, std::move(why)};
}

bool lies_in_memory(int fd) {
    struct statfs info{};
    if (fstatfs(fd, &info) != 0)
        return false;
    const auto type = static_cast<uint64_t>(info.f_type);
    return type == TMPFS_MAGIC || type == RAMFS_MAGIC;
}

// Reads one block at a time off the start of a page and off the start of the file, as the smallest
// misaligned-for-larger-blocks read would be. Returns 0 when no block size works.
uint64_t probe_block_by_reading(int fd) {
    constexpr uint64_t kPage = 4096;
    struct Free {
        void operator()(void* memory) const { std::free(memory); }
    };
    std::unique_ptr<void, Free> buffer(std::aligned_alloc(kPage, 4 * kPage));
    if (buffer == nullptr)
        return 0;
    for (uint64_t block : {uint64_t{512}, kPage}) {
        char* at = static_cast<char*>(buffer.get()) + block;
        if (pread(fd, at, block, static_cast<off_t>(block)) >= 0)
            return block;
    }
    return 0;
}

// What the kernel (6.1 and later) knows; nothing where it can't tell, 0 where direct I/O is
// refused.
std::optional<uint64_t> block_from_statx(int fd) {
    struct statx info{};
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) != 0)
        return std::nullopt;
    if ((info.stx_mask & STATX_DIOALIGN) == 0)
        return std::nullopt;
    if (info.stx_dio_mem_align == 0 || info.stx_dio_offset_align == 0)
        return 0;
    return std::max(info.stx_dio_mem_align, info.stx_dio_offset_align);
}

DirectProbe probe_direct(const std::string& path, bool in_memory) {
    if (in_memory)
        return refused("the file lies in memory");
    FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT));
    if (!fd.valid())
        return refused(errno_text(errno));
    const std::optional<uint64_t> known = block_from_statx(fd.get());
    const uint64_t block = known ? *known : probe_block_by_reading(fd.get());
    if (block == 0)
        return refused("the file system offers no direct reads for it");
    if (!std::has_single_bit(block) || block > kBlockMax)
        return refused(std::format("it wants an alignment of {} bytes", block));
    return {std::move(fd), block, {}};
}

Result<OpenFile> open_file(const std::string& path) {
    struct stat info{};
    // Before open(), which would wait for a writer if this is a named pipe.
    if (stat(path.c_str(), &info) != 0) {
        const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
        return fail(code, std::format("can't open '{}': {}", path, errno_text(errno)),
                    "check the path and its permissions");
    }
    if (!S_ISREG(info.st_mode)) {
        return fail(ErrorCode::kInvalidArgument, std::format("'{}' is not a regular file", path),
                    "name a model file");
    }
    FileDescriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) {
        return fail(ErrorCode::kIo, std::format("can't open '{}': {}", path, errno_text(errno)),
                    "check its permissions and the limit of open files (ulimit -n)");
    }
    return OpenFile{path, std::move(fd), static_cast<uint64_t>(info.st_size)};
}

// Swaps every descriptor for a direct one, or leaves all as they are and returns why.
std::optional<std::string> make_direct(ModelFiles& model) {
    std::vector<DirectProbe> probes;
    uint64_t block = 1;
    for (const OpenFile& file : model.files) {
        DirectProbe probe = probe_direct(file.path, lies_in_memory(file.fd.get()));
        if (probe.block == 0)
            return std::format("'{}' can't be read past the page cache: {}", file.path,
                               probe.refusal);
        block = std::max(block, probe.block);
        probes.push_back(std::move(probe));
    }
    for (size_t i = 0; i < probes.size(); ++i)
        model.files[i].fd = std::move(probes[i].fd);
    model.direct = true;
    model.block = block;
    return std::nullopt;
}

}  // namespace

Result<ModelFiles> open_model_files(std::span<const std::string> paths,
                                    const LinkOptions& options) {
    ModelFiles model;
    for (const std::string& path : paths) {
        Result<OpenFile> file = open_file(path);
        if (!file)
            return std::unexpected(file.error());
        model.in_memory = model.in_memory || lies_in_memory(file->fd.get());
        model.files.push_back(std::move(*file));
    }
    if (options.direct != DirectIo::kOff) {
        if (std::optional<std::string> refusal = make_direct(model)) {
            if (options.direct == DirectIo::kOn) {
                return fail(ErrorCode::kUnsupported, *refusal,
                            "use --direct-io auto or off, or another file system");
            }
            model.notices.push_back(*refusal + "; reading through the page cache instead");
        }
    }
    if (!model.direct) {
        // Experts are read whole and in no order: what lies behind them is not wanted.
        for (const OpenFile& file : model.files)
            posix_fadvise(file.fd.get(), 0, 0, POSIX_FADV_RANDOM);
    }
    return model;
}

}  // namespace bevy
