// Reads of one contiguous piece of a file each, many at a time: what a storage backend has to
// offer.
//
// A reader does no more than the operating system does: a read may be short or fail, and is
// reported as it is. FileLink cuts experts into pieces, resumes and retries. Unlike a Link, a
// reader finishes each piece by itself; the two meet in FileLink only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"

namespace bevy {

struct PieceRead {
    uint32_t piece = 0;  // chosen by the caller among 0 .. pieces_inflight_max-1, not in flight
    uint32_t file = 0;   // index into ReaderSetup::files
    uint64_t offset = 0;
    std::span<std::byte> destination;
};

struct PieceResult {
    uint32_t piece = 0;
    int64_t result =
        0;  // bytes, possibly fewer than asked for and 0 at the end of the file; or -errno
};

struct ReaderSetup {
    std::vector<int> files;  // descriptors that outlive the reader
    bool direct = false;     // they bypass the page cache
    bool drop_page_cache = false;
    uint32_t pieces_inflight_max = 1;
    // Where destinations lie: sorted by address, each at most kRegionBytesMax, outliving the
    // reader.
    std::vector<std::span<std::byte>> regions;
    bool register_regions = false;
};

// The kernel's limit for a buffer that is registered with io_uring.
constexpr uint64_t kRegionBytesMax = kGiB;

// All functions are for one thread, except wake(). Destruction waits for reads in flight.
class FileReader {
public:
    virtual ~FileReader() = default;

    // Queues a read; submit() sets off all queued ones. Neither blocks on the disk.
    virtual void start(const PieceRead& read) = 0;
    virtual void submit() = 0;
    // Stores finished reads in `out` and returns how many; does not block.
    virtual size_t poll(std::span<PieceResult> out) = 0;
    // Sleeps until a read has finished, wake() is called or `timeout` has passed; may also return
    // early. True if wake() was called since wait() last returned true.
    virtual bool wait(Duration timeout) = 0;
    // Any thread; async-signal-safe.
    virtual void wake() = 0;
};

}  // namespace bevy
