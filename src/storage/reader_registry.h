// The storage backends by name (--io). A new backend is one row here.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/registry.h"
#include "storage/file_reader.h"
#include "storage/link_options.h"

namespace bevy {

struct MadeReader {
    std::unique_ptr<FileReader> reader;
    std::string_view backend;          // "uring" or "pread": what it is, also when "auto" chose
    std::vector<std::string> notices;  // for the user
};

struct ReaderRow {
    std::string_view name;
    IoBackend value;
    std::string_view summary;
    Result<MadeReader> (*make)(const ReaderSetup& setup);
};

std::span<const ReaderRow> reader_rows();

// The row of an enumerator.
const ReaderRow& reader_row(IoBackend value);

}  // namespace bevy
