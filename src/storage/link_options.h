// How model files are read: what the command line offers, with the names it uses.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/units.h"

namespace bevy {

enum class IoBackend : uint8_t { kAuto, kUring, kPread };
enum class DirectIo : uint8_t { kAuto, kOn, kOff };

struct DirectIoRow {
    std::string_view name;
    DirectIo value;
    std::string_view summary;
};

// --direct-io. (--io: see reader_registry.h.)
inline constexpr std::array kDirectIoRows = {
    DirectIoRow{"auto", DirectIo::kAuto, "bypass the page cache where the file system allows it"},
    DirectIoRow{"on", DirectIo::kOn, "bypass the page cache, or refuse to start"},
    DirectIoRow{"off", DirectIo::kOff, "read through the page cache and drop pages behind"},
};

struct LinkOptions {
    IoBackend io = IoBackend::kAuto;
    DirectIo direct = DirectIo::kAuto;
    uint32_t transfers_inflight_max = 4;  // experts on their way at once; 1 .. 1024
    // A slice is read in pieces of at most piece_bytes, at most pieces_inflight_max of them at
    // once; more than one piece per transfer keeps a fast disk busy even when few experts are
    // wanted. The defaults reach what the disk gives with one large read after the other, and more
    // on disks that want depth.
    uint64_t piece_bytes = kMiB;       // a multiple of the disk block; 4 KiB .. 1 GiB
    uint32_t pieces_inflight_max = 8;  // 1 .. 4096
    // Let the kernel pin the slots once instead of for every read. Makes all slots resident.
    bool register_buffers = true;
    // Buffered reads only: forget pages once their bytes have been copied out.
    bool drop_page_cache = true;
};

}  // namespace bevy
