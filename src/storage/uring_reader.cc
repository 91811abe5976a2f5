#include "storage/uring_reader.h"

#include <fcntl.h>
#include <liburing.h>
#include <poll.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <format>
#include <fstream>
#include <utility>

#include "base/assert.h"
#include "storage/errno_text.h"
#include "storage/wake_event.h"

namespace bevy {

namespace {

constexpr uint64_t kPage = 4096;
// user_data of completions that are no piece.
constexpr uint64_t kWakeData = uint64_t{1} << 32;
constexpr uint64_t kDropData = uint64_t{1} << 33;
constexpr size_t kReapAtOnce = 64;

class UringReader final : public FileReader {
public:
    UringReader(const ReaderSetup& setup, WakeEvent wake_event)
        : setup_(setup), wake_event_(std::move(wake_event)) {}

    ~UringReader() override {
        if (!ring_made_)
            return;
        // The kernel may still write into the slots: wait for it.
        while (inflight_ > 0) {
            submit_and_wait(milliseconds(100));
            reap();
        }
        io_uring_queue_exit(&ring_);
    }

    Status make_ring();
    void register_files(std::vector<std::string>& notices);
    void register_regions(std::vector<std::string>& notices);

    void start(const PieceRead& read) override;
    void submit() override { io_uring_submit(&ring_); }
    size_t poll(std::span<PieceResult> out) override;
    bool wait(Duration timeout) override;
    void wake() override { wake_event_.signal(); }

private:
    io_uring_sqe* next_sqe();
    void set_file(io_uring_sqe* sqe, uint32_t file) const;
    void arm_wake();
    void submit_and_wait(Duration timeout);
    void reap();
    void take_result(uint32_t piece, int64_t result);
    void drop_pages_behind(const PieceRead& read, int64_t bytes);
    int region_of(std::span<std::byte> destination) const;

    const ReaderSetup setup_;
    const WakeEvent wake_event_;
    io_uring ring_{};
    bool ring_made_ = false;
    bool files_registered_ = false;
    bool regions_registered_ = false;
    bool wake_armed_ = false;
    bool woken_ = false;
    uint32_t inflight_ = 0;             // pieces queued or with the kernel
    std::vector<PieceRead> reads_;      // [piece], of the one in flight
    std::vector<PieceResult> results_;  // reaped, not yet polled
};

std::string refusal_text(int error) {
    std::string cause = errno_text(error);
    if (error == ENOSYS)
        return cause + ", the kernel was built without it or is older than 5.1";
    int disabled = 0;
    if (std::ifstream file("/proc/sys/kernel/io_uring_disabled"); file >> disabled && disabled != 0)
        return cause + std::format(", sysctl kernel.io_uring_disabled is {}", disabled);
    if (error == EPERM || error == EACCES)
        return cause + ", probably a filter of the container";
    return cause;
}

Status UringReader::make_ring() {
    // A read and, for buffered files, the drop of its pages; the wake event.
    const uint32_t entries = 2 * setup_.pieces_inflight_max + 2;
    // Completions are taken when this thread looks, not by interrupting it. Unknown before
    // Linux 5.19.
    const unsigned lazy = IORING_SETUP_COOP_TASKRUN | IORING_SETUP_TASKRUN_FLAG;
    int error = 0;
    for (unsigned flags : {lazy, 0u}) {
        io_uring_params params{};
        params.flags = flags | IORING_SETUP_CLAMP;
        error = -io_uring_queue_init_params(entries, &ring_, &params);
        if (error != EINVAL)
            break;
    }
    if (error != 0) {
        return fail(ErrorCode::kUnsupported, "io_uring is not available: " + refusal_text(error),
                    "use --io auto or pread, or allow io_uring (sysctl kernel.io_uring_disabled=0, "
                    "the container's seccomp profile)");
    }
    ring_made_ = true;
    reads_.resize(setup_.pieces_inflight_max);
    results_.reserve(setup_.pieces_inflight_max);
    return {};
}

void UringReader::register_files(std::vector<std::string>& notices) {
    const int error = -io_uring_register_files(&ring_, setup_.files.data(),
                                               static_cast<unsigned>(setup_.files.size()));
    files_registered_ = error == 0;
    if (error != 0) {
        notices.push_back("files could not be registered with io_uring (" + errno_text(error) +
                          "); each read looks its file up again");
    }
}

void UringReader::register_regions(std::vector<std::string>& notices) {
    std::vector<iovec> vectors;
    uint64_t bytes = 0;
    for (std::span<std::byte> region : setup_.regions) {
        vectors.push_back({region.data(), region.size()});
        bytes += region.size();
    }
    const int error =
        -io_uring_register_buffers(&ring_, vectors.data(), static_cast<unsigned>(vectors.size()));
    regions_registered_ = error == 0;
    if (error != 0) {
        notices.push_back(
            std::format("{} of buffers could not be registered with io_uring ({}); each read pins "
                        "its own pages. "
                        "Raising the limit of locked memory (ulimit -l) helps",
                        format_bytes(bytes), errno_text(error)));
    }
}

io_uring_sqe* UringReader::next_sqe() {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    while (sqe == nullptr) {
        // Full of page drops. The kernel takes entries even when it has no time for them yet; it
        // refuses only while completions overflow, so make room for those.
        io_uring_submit(&ring_);
        reap();
        sqe = io_uring_get_sqe(&ring_);
    }
    return sqe;
}

void UringReader::set_file(io_uring_sqe* sqe, uint32_t file) const {
    if (files_registered_) {
        sqe->fd = static_cast<int>(file);
        sqe->flags |= IOSQE_FIXED_FILE;
    } else {
        sqe->fd = setup_.files[file];
    }
}

int UringReader::region_of(std::span<std::byte> destination) const {
    auto after = std::upper_bound(setup_.regions.begin(), setup_.regions.end(), destination.data(),
                                  [](const std::byte* address, std::span<std::byte> region) {
                                      return address < region.data();
                                  });
    if (after == setup_.regions.begin())
        return -1;
    const std::span<std::byte> region = *std::prev(after);
    if (destination.data() + destination.size() > region.data() + region.size())
        return -1;
    return static_cast<int>(std::prev(after) - setup_.regions.begin());
}

void UringReader::start(const PieceRead& read) {
    BEVY_ASSERT(read.piece < reads_.size() && read.file < setup_.files.size());
    reads_[read.piece] = read;
    ++inflight_;
    io_uring_sqe* sqe = next_sqe();
    const auto length = static_cast<unsigned>(read.destination.size());
    const int region = regions_registered_ ? region_of(read.destination) : -1;
    if (region >= 0)
        io_uring_prep_read_fixed(sqe, 0, read.destination.data(), length, read.offset, region);
    else
        io_uring_prep_read(sqe, 0, read.destination.data(), length, read.offset);
    set_file(sqe, read.file);
    // A buffered read copies, and may sleep over metadata: not in the thread that submits it.
    if (!setup_.direct)
        sqe->flags |= IOSQE_ASYNC;
    io_uring_sqe_set_data64(sqe, read.piece);
}

void UringReader::drop_pages_behind(const PieceRead& read, int64_t bytes) {
    const uint64_t begin = round_down(read.offset, kPage);
    const uint64_t end = round_up(read.offset + static_cast<uint64_t>(bytes), kPage);
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    if (sqe == nullptr)
        return;  // the pages stay until the kernel wants them; no reason to wait
    io_uring_prep_fadvise(sqe, 0, begin, static_cast<uint32_t>(end - begin), POSIX_FADV_DONTNEED);
    set_file(sqe, read.file);
    io_uring_sqe_set_data64(sqe, kDropData);
}

void UringReader::take_result(uint32_t piece, int64_t result) {
    BEVY_ASSERT(piece < reads_.size() && inflight_ > 0);
    --inflight_;
    results_.push_back({piece, result});
    if (setup_.drop_page_cache && result > 0)
        drop_pages_behind(reads_[piece], result);
}

void UringReader::reap() {
    std::array<io_uring_cqe*, kReapAtOnce> entries{};
    while (true) {
        const unsigned count = io_uring_peek_batch_cqe(&ring_, entries.data(), kReapAtOnce);
        if (count == 0)
            break;
        for (unsigned i = 0; i < count; ++i) {
            const uint64_t data = io_uring_cqe_get_data64(entries[i]);
            if (data == kWakeData) {
                wake_armed_ = false;
                woken_ = wake_event_.take() || woken_;
            } else if (data != kDropData) {
                take_result(static_cast<uint32_t>(data), entries[i]->res);
            }
        }
        io_uring_cq_advance(&ring_, count);
    }
}

size_t UringReader::poll(std::span<PieceResult> out) {
    reap();
    if (io_uring_sq_ready(&ring_) > 0)
        io_uring_submit(&ring_);
    const size_t count = std::min(out.size(), results_.size());
    std::copy_n(results_.begin(), count, out.begin());
    results_.erase(results_.begin(), results_.begin() + static_cast<ptrdiff_t>(count));
    return count;
}

// Here, not when the ring is made: the kernel completes a request in the thread that submitted it,
// and that one has to be the thread that waits.
void UringReader::arm_wake() {
    if (wake_armed_)
        return;
    io_uring_sqe* sqe = next_sqe();
    io_uring_prep_poll_add(sqe, wake_event_.fd(), POLLIN);
    io_uring_sqe_set_data64(sqe, kWakeData);
    wake_armed_ = true;
}

void UringReader::submit_and_wait(Duration timeout) {
    const int64_t ns = std::max<int64_t>(timeout.ns, 0);
    __kernel_timespec limit{ns / 1'000'000'000, ns % 1'000'000'000};
    io_uring_cqe* ignored = nullptr;
    io_uring_submit_and_wait_timeout(&ring_, &ignored, 1, &limit, nullptr);
}

bool UringReader::wait(Duration timeout) {
    reap();
    if (results_.empty() && !woken_) {
        arm_wake();
        submit_and_wait(timeout);
        reap();
    }
    return std::exchange(woken_, false);
}

}  // namespace

Result<MadeReader> make_uring_reader(const ReaderSetup& setup) {
    Result<WakeEvent> wake_event = WakeEvent::create();
    if (!wake_event)
        return std::unexpected(wake_event.error());
    auto reader = std::make_unique<UringReader>(setup, std::move(*wake_event));
    if (Status made = reader->make_ring(); !made)
        return std::unexpected(made.error());
    MadeReader result;
    reader->register_files(result.notices);
    if (setup.register_regions && !setup.regions.empty())
        reader->register_regions(result.notices);
    result.reader = std::move(reader);
    result.backend = "uring";
    return result;
}

}  // namespace bevy
