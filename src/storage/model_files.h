// The open files of a model, and in what units their disk may be read.
//
// First of the two steps to a link: open_model_files() finds out whether reads can bypass the page
// cache and with which block; slots are then planned for that block (slot_layout.h) and the link is
// made (file_link.h). Files are opened read-only and stay open for the life of the object.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "storage/file_descriptor.h"
#include "storage/link_options.h"

namespace bevy {

struct OpenFile {
    std::string path;
    FileDescriptor fd;
    uint64_t bytes = 0;  // when it was opened
};

struct ModelFiles {
    std::vector<OpenFile> files;  // in the order of Extent::file
    bool direct = false;          // all descriptors bypass the page cache
    uint64_t block = 1;           // of offsets, lengths and addresses; 1 when not direct
    bool in_memory = false;       // some file lies on tmpfs or ramfs: its page cache is its disk
    std::vector<std::string> notices;  // what is slower than it could be, and why; for the user
};

// Error: kNotFound, kIo, kInvalidArgument (not a regular file), kUnsupported (DirectIo::kOn is
// refused).
Result<ModelFiles> open_model_files(std::span<const std::string> paths, const LinkOptions& options);

}  // namespace bevy
