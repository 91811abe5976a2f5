// A FileReader on io_uring: no threads of its own, registered files and buffers.
#pragma once

#include "storage/reader_registry.h"

namespace bevy {

// Error: kUnsupported when the kernel, a sysctl or a container's filter refuses io_uring; the
// message says which. Buffers that can't be registered are a notice only.
Result<MadeReader> make_uring_reader(const ReaderSetup& setup);

}  // namespace bevy
