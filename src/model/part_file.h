// A file under construction: NAME.part until it is published under its name, or removed. One
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "model/header_reader.h"

namespace bevy {

class PartFile {
public:
    // `bytes_expected`: reserved on the disk now where the file system can, so that a full disk is
    // known before hours of writing. Errors: kInvalidArgument (`path` exists and may not be
    // overwritten, or another process is writing it), kIo.
    static Result<PartFile> create(const std::string& path, bool overwrite,
                                   uint64_t bytes_expected);
    PartFile(PartFile&& other) noexcept;
    PartFile& operator=(PartFile&&) noexcept = delete;
    ~PartFile();

    Status append(std::span<const std::byte> bytes);
    // Everything written so far is on the disk.
    Status sync();
    // Gives the file its name. REQUIRES: sync() after the last append().
    Status publish();

private:
    PartFile(FileHandle file, std::string path);
    Status flush();
    Status write_through(std::span<const std::byte> bytes);
    std::unexpected<Error> fail_io(std::string_view what, int error_number) const;

    FileHandle file_;
    std::string path_;
    std::string part_path_;  // empty: published, or moved to another object
    std::vector<std::byte> buffer_;
};

}  // namespace bevy
