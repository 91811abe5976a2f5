// A FileReader on plain pread(2): one thread per piece in flight. Works everywhere.
#pragma once

#include "storage/reader_registry.h"

namespace bevy {

// Error: kIo when threads or descriptors can't be had.
Result<MadeReader> make_pread_reader(const ReaderSetup& setup);

}  // namespace bevy
