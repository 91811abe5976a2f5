// The link that reads experts from model files into host slots.
//
// Second of the two steps (the first: model_files.h). An expert is cut into its slices, a slice
// into pieces of at most LinkOptions::piece_bytes; a bounded number of pieces is with the reader at
// once, in the order in which transfers started. Pieces of direct slices land in the slot; others
// land in a bounce buffer, one per piece in flight, and are copied when they arrive. Short reads
// are resumed; failed ones are tried three times in all, then the transfer ends with an error that
// names file, offset and cause.
//
// Pieces are reaped and set off in start(), poll() and wait() only, on the engine thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/expert_table.h"
#include "base/slot_layout.h"
#include "storage/file_reader.h"
#include "storage/link.h"
#include "storage/link_options.h"
#include "storage/model_files.h"
#include "storage/slot_arena.h"

namespace bevy {

struct OpenedLink {
    std::unique_ptr<Link> link;
    std::string_view backend;          // of the reader; see reader_registry.h
    std::vector<std::string> notices;  // what is slower than it could be, and why; for the user
};

// Tests put a faulty reader in front of the real one with it.
using ReaderDecorator = std::function<std::unique_ptr<FileReader>(std::unique_ptr<FileReader>)>;

// kInvalidArgument when a number is out of the range that LinkOptions names.
Status check_link_options(const LinkOptions& options);

// Memory that make_file_link() will take for bounce buffers, for the memory plan.
uint64_t bounce_bytes(const SlotLayout& layout, const LinkOptions& options);

// `layout` was planned for `table` and files.block. `arena` and `clock` outlive the link; the arena
// does not move its memory. Destroying the link waits for reads in flight. Error: kInvalidArgument
// (options, or a layout that does not fit), kCorruptFile (an expert lies outside its file), kBudget
// (memory), kUnsupported or kIo (the reader).
Result<OpenedLink> make_file_link(ModelFiles files, ExpertTable table, SlotLayout layout,
                                  const SlotArena& arena, const LinkOptions& options,
                                  const Clock& clock, const ReaderDecorator& decorate = {});

}  // namespace bevy
