#include "storage/pread_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <format>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "storage/wake_event.h"

namespace bevy {

namespace {

constexpr uint64_t kPage = 4096;

class PreadReader final : public FileReader {
public:
    PreadReader(const ReaderSetup& setup, WakeEvent finished, WakeEvent woken)
        : setup_(setup), finished_event_(std::move(finished)), wake_event_(std::move(woken)) {}

    ~PreadReader() override {
        {
            std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        work_available_.notify_all();
        for (std::thread& worker : workers_)
            worker.join();
    }

    Status start_workers() {
        try {
            for (uint32_t i = 0; i < setup_.pieces_inflight_max; ++i)
                workers_.emplace_back([this] { work(); });
        } catch (const std::system_error& error) {
            return fail(ErrorCode::kIo,
                        std::format("can't start {} reader threads: {}", setup_.pieces_inflight_max,
                                    error.what()),
                        "raise the limit of processes (ulimit -u)");
        }
        return {};
    }

    void start(const PieceRead& read) override {
        {
            std::lock_guard lock(mutex_);
            queued_.push_back(read);
        }
        work_available_.notify_one();
    }

    void submit() override {}

    size_t poll(std::span<PieceResult> out) override {
        std::lock_guard lock(mutex_);
        const size_t count = std::min(out.size(), finished_.size());
        std::copy_n(finished_.begin(), count, out.begin());
        finished_.erase(finished_.begin(), finished_.begin() + static_cast<ptrdiff_t>(count));
        return count;
    }

    bool wait(Duration timeout) override {
        pollfd events[] = {{finished_event_.fd(), POLLIN, 0}, {wake_event_.fd(), POLLIN, 0}};
        const int64_t ns = std::max<int64_t>(timeout.ns, 0);
        const timespec limit{ns / 1'000'000'000, ns % 1'000'000'000};
        // Reset before looking, so that a read that finishes in between ends the sleep.
        finished_event_.take();
        {
            std::lock_guard lock(mutex_);
            if (!finished_.empty())
                return wake_event_.take();
        }
        ppoll(events, std::size(events), &limit, nullptr);
        return wake_event_.take();
    }

    void wake() override { wake_event_.signal(); }

private:
    void work() {
        std::unique_lock lock(mutex_);
        while (true) {
            work_available_.wait(lock, [this] { return stopping_ || !queued_.empty(); });
            if (queued_.empty())
                return;
            const PieceRead read = queued_.front();
            queued_.pop_front();
            lock.unlock();
            const int64_t result = read_now(read);
            lock.lock();
            finished_.push_back({read.piece, result});
            finished_event_.signal();
        }
    }

    int64_t read_now(const PieceRead& read) const {
        const int fd = setup_.files[read.file];
        const ssize_t got = pread(fd, read.destination.data(), read.destination.size(),
                                  static_cast<off_t>(read.offset));
        if (got < 0)
            return -errno;
        if (setup_.drop_page_cache && got > 0) {
            // Whole pages only are dropped, so name the ones at both ends in full.
            const uint64_t begin = round_down(read.offset, kPage);
            const uint64_t end = round_up(read.offset + static_cast<uint64_t>(got), kPage);
            posix_fadvise(fd, static_cast<off_t>(begin), static_cast<off_t>(end - begin),
                          POSIX_FADV_DONTNEED);
        }
        return got;
    }

    const ReaderSetup setup_;
    const WakeEvent finished_event_;
    const WakeEvent wake_event_;
    std::mutex mutex_;
    std::condition_variable work_available_;
    bool stopping_ = false;  // guarded by mutex_, as the two below
    std::deque<PieceRead> queued_;
    std::vector<PieceResult> finished_;
    std::vector<std::thread> workers_;
};

}  // namespace

Result<MadeReader> make_pread_reader(const ReaderSetup& setup) {
    Result<WakeEvent> finished = WakeEvent::create();
    if (!finished)
        return std::unexpected(finished.error());
    Result<WakeEvent> woken = WakeEvent::create();
    if (!woken)
        return std::unexpected(woken.error());
    auto reader = std::make_unique<PreadReader>(setup, std::move(*finished), std::move(*woken));
    if (Status started = reader->start_workers(); !started)
        return std::unexpected(started.error());
    return MadeReader{std::move(reader), "pread", {}};
}

}  // namespace bevy
