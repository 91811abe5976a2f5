#include "storage/reader_registry.h"

#include <array>
#include <utility>

#include "base/assert.h"
#include "storage/pread_reader.h"
#include "storage/uring_reader.h"

namespace bevy {

namespace {

Result<MadeReader> make_auto_reader(const ReaderSetup& setup) {
    Result<MadeReader> made = make_uring_reader(setup);
    if (made)
        return made;
    std::string notice = made.error().message + "; reading with threads instead";
    made = make_pread_reader(setup);
    if (made)
        made->notices.insert(made->notices.begin(), std::move(notice));
    return made;
}

constexpr std::array kRows = {
    ReaderRow{"auto", IoBackend::kAuto, "io_uring where the kernel allows it, else threads",
              make_auto_reader},
    ReaderRow{"uring", IoBackend::kUring, "io_uring, or refuse to start", make_uring_reader},
    ReaderRow{"pread", IoBackend::kPread, "threads that read one piece each", make_pread_reader},
};

}  // namespace

std::span<const ReaderRow> reader_rows() {
    return kRows;
}

const ReaderRow& reader_row(IoBackend value) {
    for (const ReaderRow& row : kRows) {
        if (row.value == value)
            return row;
    }
    BEVY_ASSERT(false && "every IoBackend has a row");
    return kRows[0];
}

}  // namespace bevy
