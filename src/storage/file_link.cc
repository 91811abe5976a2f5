#include "storage/file_link.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <format>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "storage/errno_text.h"
#include "storage/reader_registry.h"
#include "storage/slot_layout.h"

namespace bevy {

namespace {

constexpr uint32_t kAttemptsMax = 3;  // of a piece that fails or gets no further
constexpr uint32_t kInterruptionsMax =
    1000;  // EINTR and EAGAIN, which say "again" and nothing else
// Longer waits end early, which a caller can't tell from a wake; keeps sums from overflowing.
constexpr Duration kWaitMax = milliseconds(3'600'000);
constexpr size_t kResultsAtOnce = 32;

// One slice of an expert on its way.
struct Part {
    uint32_t file = 0;
    WidenedRange range;
    uint64_t bytes = 0;          // of the slice, from range.head on
    std::byte* slice = nullptr;  // where its first byte goes
    bool direct = false;
    uint64_t piece_bytes = 0;  // all pieces but the last have this size
    uint64_t launched = 0;     // bytes of the range that have become pieces
};

struct Transfer {
    bool active = false;
    bool cancelled = false;
    bool asked = false;  // a first piece went out
    ExpertId expert;
    std::vector<Part> parts;
    size_t next_part = 0;  // the first with bytes left to launch
    uint32_t pieces_inflight = 0;
    std::optional<Error> error;
    uint64_t bytes_read = 0;
    Instant started;

    bool may_launch() const { return !cancelled && !error && next_part < parts.size(); }
};

// A piece in flight; its index names its bounce buffer too.
struct Piece {
    Ticket ticket;
    size_t part = 0;
    uint64_t begin = 0;  // from the start of the part's range
    uint64_t length = 0;
    uint64_t needed =
        0;  // the piece is done with this many bytes; less than length at the slice's end
    uint64_t done = 0;  // bytes read by earlier attempts, whole blocks
    uint32_t failures = 0;
    uint32_t interruptions = 0;
};

// Pieces of equal size: no small remainder that costs a read of its own.
uint64_t even_piece_bytes(uint64_t length, uint64_t piece_max, uint64_t block) {
    const uint64_t pieces = (length + piece_max - 1) / piece_max;
    return std::min(piece_max, round_up((length + pieces - 1) / pieces, std::max(block, 4 * kKiB)));
}

class FileLink final : public Link {
public:
    FileLink(ModelFiles files, ExpertTable table, SlotLayout layout, const SlotArena& arena,
             AlignedMemory bounce, const LinkOptions& options, const Clock& clock)
        : files_(std::move(files)),
          table_(std::move(table)),
          layout_(std::move(layout)),
          arena_(arena),
          bounce_(std::move(bounce)),
          options_(options),
          clock_(clock),
          transfers_(options.transfers_inflight_max),
          pieces_(options.pieces_inflight_max) {
        for (uint32_t i = options.pieces_inflight_max; i > 0; --i)
            free_pieces_.push_back(i - 1);
    }

    ReaderSetup reader_setup() const;
    void set_reader(std::unique_ptr<FileReader> reader) { reader_ = std::move(reader); }

    uint32_t transfers_inflight_max() const override { return options_.transfers_inflight_max; }
    void start(Ticket ticket, ExpertId expert, SlotIndex slot) override;
    void cancel(Ticket ticket) override;
    size_t poll(std::span<LinkCompletion> out) override;
    void wait(Duration timeout) override;
    void wake() override { reader_->wake(); }

private:
    void launch_pieces();
    void launch_piece(Ticket ticket);
    void read_rest(uint32_t index);
    void reap();
    void take_result(uint32_t index, int64_t result);
    void finish_piece(uint32_t index);
    void fail_piece(uint32_t index, ErrorCode code, std::string cause, std::string hint);
    void release_piece(uint32_t index);
    void complete_if_done(Ticket ticket);
    std::byte* destination(const Piece& piece, uint32_t index) const;
    std::byte* bounce_buffer(uint32_t index) const {
        return bounce_.bytes().data() + index * options_.piece_bytes;
    }

    const ModelFiles files_;
    const ExpertTable table_;
    const SlotLayout layout_;
    const SlotArena& arena_;
    const AlignedMemory bounce_;  // empty when all slices are direct
    const LinkOptions options_;
    const Clock& clock_;
    const SystemClock timeout_clock_;
    std::vector<Transfer> transfers_;  // [ticket]
    std::vector<Piece> pieces_;        // [piece]
    std::vector<uint32_t> free_pieces_;
    std::deque<Ticket> launchable_;        // transfers with pieces left to launch, oldest first
    std::deque<LinkCompletion> finished_;  // not yet polled
    std::unique_ptr<FileReader> reader_;   // last: destroyed first, which ends all reads
};

// Appends `memory` cut into chunks the kernel can register; no border inside a unit.
void append_regions(std::span<std::byte> memory, uint64_t unit,
                    std::vector<std::span<std::byte>>& regions) {
    const uint64_t chunk = std::max<uint64_t>(kRegionBytesMax / unit, 1) * unit;
    for (uint64_t at = 0; at < memory.size(); at += chunk)
        regions.push_back(memory.subspan(at, std::min(chunk, memory.size() - at)));
}

ReaderSetup FileLink::reader_setup() const {
    ReaderSetup setup;
    for (const OpenFile& file : files_.files)
        setup.files.push_back(file.fd.get());
    setup.direct = files_.direct;
    setup.drop_page_cache = options_.drop_page_cache && !files_.direct && !files_.in_memory;
    setup.pieces_inflight_max = options_.pieces_inflight_max;
    // Buffered reads copy: pinned pages would gain nothing.
    setup.register_regions = options_.register_buffers && files_.direct;
    append_regions({arena_.base(), arena_.bytes()}, arena_.slot_bytes(), setup.regions);
    if (!bounce_.bytes().empty())
        append_regions(bounce_.bytes(), options_.piece_bytes, setup.regions);
    std::sort(setup.regions.begin(), setup.regions.end(),
              [](auto a, auto b) { return a.data() < b.data(); });
    return setup;
}

void FileLink::start(Ticket ticket, ExpertId expert, SlotIndex slot) {
    BEVY_ASSERT(ticket.value < transfers_.size() && !transfers_[ticket.value].active);
    BEVY_ASSERT(expert.value < table_.expert_count());
    Transfer& transfer = transfers_[ticket.value];
    std::vector<Part> parts = std::move(transfer.parts);  // keeps its memory
    parts.clear();
    const LayerIndex layer = table_.layer_of(expert);
    const std::span<std::byte> memory = arena_.slot(slot);
    const std::vector<ExpertSlice>& slices = table_.layers[layer.value].slices;
    for (size_t s = 0; s < slices.size(); ++s) {
        const Extent extent = slices[s].extent(table_.index_of(expert));
        const SlotSlice& place = layout_.layers[layer.value][s];
        Part part;
        part.file = extent.file;
        part.range = widen_to_blocks(extent, files_.block);
        part.bytes = extent.length;
        part.slice = memory.data() + place.offset(table_.index_of(expert));
        part.direct = place.direct;
        part.piece_bytes = even_piece_bytes(part.range.length, options_.piece_bytes, files_.block);
        parts.push_back(part);
    }
    transfer = Transfer{};
    transfer.active = true;
    transfer.expert = expert;
    transfer.parts = std::move(parts);
    transfer.started = clock_.now();
    if (transfer.parts.empty()) {
        complete_if_done(ticket);
        return;
    }
    launchable_.push_back(ticket);
    reap();
}

void FileLink::cancel(Ticket ticket) {
    BEVY_ASSERT(ticket.value < transfers_.size());
    Transfer& transfer = transfers_[ticket.value];
    // Finished, but not polled yet: too late. Everything asked for: let it arrive.
    if (!transfer.active || !transfer.may_launch())
        return;
    transfer.cancelled = true;
    std::erase(launchable_, ticket);
    complete_if_done(ticket);
}

size_t FileLink::poll(std::span<LinkCompletion> out) {
    reap();
    const size_t count = std::min(out.size(), finished_.size());
    for (size_t i = 0; i < count; ++i) {
        out[i] = std::move(finished_.front());
        finished_.pop_front();
        transfers_[out[i].ticket.value].active = false;
    }
    return count;
}

void FileLink::wait(Duration timeout) {
    const Instant deadline = timeout_clock_.now() + std::clamp(timeout, Duration{0}, kWaitMax);
    while (true) {
        reap();
        if (!finished_.empty())
            return;
        const Duration left = deadline - timeout_clock_.now();
        const bool woken = reader_->wait(std::max(left, Duration{0}));
        if (woken || left.ns <= 0)
            return;
    }
}

// Hands over what may go out, after taking in what has come back.
void FileLink::reap() {
    std::array<PieceResult, kResultsAtOnce> results;
    size_t count = 0;
    do {
        count = reader_->poll(results);
        for (size_t i = 0; i < count; ++i)
            take_result(results[i].piece, results[i].result);
    } while (count == results.size());
    launch_pieces();
    reader_->submit();
}

void FileLink::launch_pieces() {
    while (!free_pieces_.empty() && !launchable_.empty()) {
        const Ticket ticket = launchable_.front();
        if (transfers_[ticket.value].may_launch())
            launch_piece(ticket);
        if (!transfers_[ticket.value].may_launch())
            launchable_.pop_front();
    }
}

void FileLink::launch_piece(Ticket ticket) {
    Transfer& transfer = transfers_[ticket.value];
    Part& part = transfer.parts[transfer.next_part];
    const uint32_t index = free_pieces_.back();
    free_pieces_.pop_back();
    Piece& piece = pieces_[index];
    piece = Piece{};
    piece.ticket = ticket;
    piece.part = transfer.next_part;
    piece.begin = part.launched;
    piece.length = std::min(part.piece_bytes, part.range.length - part.launched);
    piece.needed = std::min(piece.length, part.range.head + part.bytes - piece.begin);
    part.launched += piece.length;
    if (part.launched == part.range.length)
        ++transfer.next_part;
    ++transfer.pieces_inflight;
    if (!std::exchange(transfer.asked, true))
        transfer.started = clock_.now();
    read_rest(index);
}

std::byte* FileLink::destination(const Piece& piece, uint32_t index) const {
    const Part& part = transfers_[piece.ticket.value].parts[piece.part];
    return part.direct ? part.slice - part.range.head + piece.begin : bounce_buffer(index);
}

void FileLink::read_rest(uint32_t index) {
    const Piece& piece = pieces_[index];
    const Part& part = transfers_[piece.ticket.value].parts[piece.part];
    PieceRead read;
    read.piece = index;
    read.file = part.file;
    read.offset = part.range.offset + piece.begin + piece.done;
    read.destination = {destination(piece, index) + piece.done, piece.length - piece.done};
    reader_->start(read);
}

void FileLink::take_result(uint32_t index, int64_t result) {
    Piece& piece = pieces_[index];
    Transfer& transfer = transfers_[piece.ticket.value];
    transfer.bytes_read += static_cast<uint64_t>(std::max<int64_t>(result, 0));
    if (transfer.cancelled || transfer.error)
        return release_piece(index);
    if (result == -EINTR || result == -EAGAIN) {
        if (++piece.interruptions <= kInterruptionsMax)
            return read_rest(index);
    }
    if (result < 0) {
        if (++piece.failures < kAttemptsMax)
            return read_rest(index);
        return fail_piece(
            index, ErrorCode::kIo, errno_text(static_cast<int>(-result)),
            result == -EINVAL ? "try --direct-io off" : "check the disk (dmesg, smartctl)");
    }
    const auto bytes = static_cast<uint64_t>(result);
    if (piece.done + bytes >= piece.needed)
        return finish_piece(index);
    // A short read. Go on at the last whole block; the disk can't start in the middle of one.
    const uint64_t done = round_down(piece.done + bytes, files_.block);
    if (done > piece.done)
        piece.failures = 0;
    else if (bytes == 0 || ++piece.failures >= kAttemptsMax)
        return fail_piece(index, ErrorCode::kCorruptFile, "the file ends too early",
                          "it was cut off after it was opened; restore it and start again");
    piece.done = done;
    read_rest(index);
}

void FileLink::finish_piece(uint32_t index) {
    const Piece& piece = pieces_[index];
    const Part& part = transfers_[piece.ticket.value].parts[piece.part];
    if (!part.direct) {
        const uint64_t from = std::max(piece.begin, part.range.head);
        const uint64_t to = piece.begin + piece.needed;
        if (from < to) {
            std::memcpy(part.slice + (from - part.range.head),
                        bounce_buffer(index) + (from - piece.begin), to - from);
        }
    }
    release_piece(index);
}

void FileLink::fail_piece(uint32_t index, ErrorCode code, std::string cause, std::string hint) {
    const Piece& piece = pieces_[index];
    Transfer& transfer = transfers_[piece.ticket.value];
    const Part& part = transfer.parts[piece.part];
    if (!transfer.error) {
        const uint64_t from = part.range.offset + piece.begin + piece.done;
        transfer.error = Error{
            code,
            std::format(
                "can't read expert {} of MoE layer {} from '{}' at offset {} ({} bytes): {}",
                table_.index_of(transfer.expert).value, table_.layer_of(transfer.expert).value,
                files_.files[part.file].path, from, piece.needed - piece.done, cause),
            std::move(hint)};
        std::erase(launchable_, piece.ticket);
    }
    release_piece(index);
}

void FileLink::release_piece(uint32_t index) {
    const Ticket ticket = pieces_[index].ticket;
    free_pieces_.push_back(index);
    --transfers_[ticket.value].pieces_inflight;
    complete_if_done(ticket);
}

void FileLink::complete_if_done(Ticket ticket) {
    Transfer& transfer = transfers_[ticket.value];
    if (transfer.pieces_inflight > 0 || transfer.may_launch())
        return;
    LinkCompletion completion;
    completion.ticket = ticket;
    completion.error = std::move(transfer.error);
    if (transfer.cancelled)
        completion.error = Error{ErrorCode::kCancelled, "the read was cancelled", {}};
    completion.bytes_read = transfer.bytes_read;
    completion.started = transfer.started;
    completion.finished = clock_.now();
    finished_.push_back(std::move(completion));
}

std::unexpected<Error> layout_misfit() {
    return fail(ErrorCode::kInvalidArgument,
                "the slot layout was planned for another model or disk");
}

Status check_slice(const ModelFiles& files, const ExpertTable& table, const ExpertSlice& slice,
                   const SlotSlice& place, uint64_t slot_bytes) {
    if (slice.file >= files.files.size())
        return layout_misfit();
    const OpenFile& file = files.files[slice.file];
    const uint64_t room = file.bytes - std::min(file.bytes, slice.offset);
    if (slice.bytes_per_expert > room / std::max(table.experts_per_layer, 1u)) {
        return fail(
            ErrorCode::kCorruptFile,
            std::format("'{}' ends at byte {}, before the last of its {} experts of {} bytes "
                        "from byte {} on",
                        file.path, file.bytes, table.experts_per_layer, slice.bytes_per_expert,
                        slice.offset),
            "the download is incomplete; get the file again");
    }
    if (place.offsets.empty())
        return layout_misfit();
    for (uint32_t e = 0; e < table.experts_per_layer; ++e) {
        const uint64_t offset = place.offset(ExpertIndex(e));
        const WidenedRange range = widen_to_blocks(slice.extent(ExpertIndex(e)), files.block);
        const uint64_t head = place.direct ? range.head : 0;
        const uint64_t region = place.direct ? range.length : slice.bytes_per_expert;
        if (offset < head || offset - head + region > slot_bytes)
            return layout_misfit();
        if (place.direct && (offset - head) % files.block != 0)
            return layout_misfit();
    }
    return {};
}

Status check_layout(const ModelFiles& files, const ExpertTable& table, const SlotLayout& layout,
                    const SlotArena& arena) {
    if (layout.layers.size() != table.layers.size() || arena.slot_bytes() != layout.slot_bytes ||
        layout.slot_bytes % files.block != 0) {
        return layout_misfit();
    }
    for (size_t l = 0; l < table.layers.size(); ++l) {
        const std::vector<ExpertSlice>& slices = table.layers[l].slices;
        if (layout.layers[l].size() != slices.size())
            return layout_misfit();
        for (size_t s = 0; s < slices.size(); ++s) {
            Status ok =
                check_slice(files, table, slices[s], layout.layers[l][s], layout.slot_bytes);
            if (!ok)
                return ok;
        }
    }
    return {};
}

}  // namespace

Status check_link_options(const LinkOptions& options) {
    const auto outside = [](std::string_view what, uint64_t value, uint64_t low, uint64_t high) {
        return fail(ErrorCode::kInvalidArgument,
                    std::format("{} must be between {} and {}, not {}", what, low, high, value));
    };
    if (options.transfers_inflight_max < 1 || options.transfers_inflight_max > 1024)
        return outside("the number of experts read at once", options.transfers_inflight_max, 1,
                       1024);
    if (options.pieces_inflight_max < 1 || options.pieces_inflight_max > 4096)
        return outside("the number of reads in flight", options.pieces_inflight_max, 1, 4096);
    if (options.piece_bytes < 4 * kKiB || options.piece_bytes > kGiB)
        return outside("the size of a read", options.piece_bytes, 4 * kKiB, kGiB);
    return {};
}

uint64_t bounce_bytes(const SlotLayout& layout, const LinkOptions& options) {
    for (const std::vector<SlotSlice>& slices : layout.layers) {
        for (const SlotSlice& slice : slices) {
            if (!slice.direct)
                return options.piece_bytes * options.pieces_inflight_max;
        }
    }
    return 0;
}

Result<OpenedLink> make_file_link(ModelFiles files, ExpertTable table, SlotLayout layout,
                                  const SlotArena& arena, const LinkOptions& options,
                                  const Clock& clock, const ReaderDecorator& decorate) {
    if (Status ok = check_link_options(options); !ok)
        return std::unexpected(ok.error());
    if (options.piece_bytes % files.block != 0) {
        return fail(
            ErrorCode::kInvalidArgument,
            std::format("the size of a read, {} bytes, is not a multiple of the disk block, {}",
                        options.piece_bytes, files.block));
    }
    if (Status ok = check_layout(files, table, layout, arena); !ok)
        return std::unexpected(ok.error());
    Result<AlignedMemory> bounce =
        AlignedMemory::create(bounce_bytes(layout, options), "bounce buffers");
    if (!bounce)
        return std::unexpected(bounce.error());
    auto link = std::make_unique<FileLink>(std::move(files), std::move(table), std::move(layout),
                                           arena, std::move(*bounce), options, clock);
    Result<MadeReader> made = reader_row(options.io).make(link->reader_setup());
    if (!made)
        return std::unexpected(made.error());
    link->set_reader(decorate ? decorate(std::move(made->reader)) : std::move(made->reader));
    return OpenedLink{std::move(link), made->backend, std::move(made->notices)};
}

}  // namespace bevy
