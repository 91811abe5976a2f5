#include "storage/faulty_reader.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/prng.h"
#include "storage/hold_back.h"

namespace bevy {

namespace {

constexpr std::byte kScribble{0xee};
constexpr size_t kResultsAtOnce = 32;

class FaultyReader final : public FileReader {
public:
    FaultyReader(std::unique_ptr<FileReader> reader, ReaderFaults faults, ReaderFaultCounts* counts)
        : reader_(std::move(reader)),
          faults_(std::move(faults)),
          counts_(counts != nullptr ? counts : &own_counts_),
          prng_(faults_.seed) {}

    void start(const PieceRead& read) override {
        if (touches_bad_range(read)) {
            ++counts_->errors;
            hold({read.piece, -EIO});
        } else if (strikes(faults_.error_per_mille, read)) {
            ++counts_->errors;
            hold({read.piece, -EIO});
        } else if (strikes(faults_.interrupt_per_mille, read)) {
            ++counts_->interrupts;
            hold({read.piece, prng_.chance(1, 2) ? -EINTR : -EAGAIN});
        } else {
            if (read.destination.size() > 1 && strikes(faults_.short_per_mille, read))
                shortened_[read.piece] = {read, prng_.between(1, read.destination.size() - 1)};
            reader_->start(read);
        }
    }

    void submit() override { reader_->submit(); }

    size_t poll(std::span<PieceResult> out) override {
        std::array<PieceResult, kResultsAtOnce> results;
        const size_t count = reader_->poll(results);
        for (size_t i = 0; i < count; ++i)
            hold(cut_short(results[i]));
        return held_.release(out);
    }

    bool wait(Duration timeout) override {
        // What is held comes out by polling.
        return reader_->wait(held_.empty() ? timeout : Duration{0});
    }

    void wake() override { reader_->wake(); }

private:
    struct Shortened {
        PieceRead read;
        uint64_t bytes;
    };

    bool touches_bad_range(const PieceRead& read) const {
        return std::any_of(faults_.bad_ranges.begin(), faults_.bad_ranges.end(), [&](Extent bad) {
            return bad.file == read.file && bad.offset < read.offset + read.destination.size() &&
                   read.offset < bad.offset + bad.length;
        });
    }

    bool strikes(uint32_t per_mille, const PieceRead& read) {
        return prng_.chance(per_mille, 1000) && struck_.insert({read.file, read.offset}).second;
    }

    void hold(PieceResult result) { held_.add(result, prng_.between(0, faults_.hold_polls_max)); }

    PieceResult cut_short(PieceResult result) {
        auto found = shortened_.find(result.piece);
        if (found == shortened_.end())
            return result;
        const Shortened cut = found->second;
        shortened_.erase(found);
        if (result.result > static_cast<int64_t>(cut.bytes)) {
            ++counts_->shorts;
            result.result = static_cast<int64_t>(cut.bytes);
            std::ranges::fill(cut.read.destination.subspan(cut.bytes), kScribble);
        }
        return result;
    }

    std::unique_ptr<FileReader> reader_;
    const ReaderFaults faults_;
    ReaderFaultCounts own_counts_;
    ReaderFaultCounts* const counts_;
    Prng prng_;
    std::set<std::pair<uint32_t, uint64_t>> struck_;     // (file, offset) that had its fault
    std::unordered_map<uint32_t, Shortened> shortened_;  // by piece in flight
    HoldBack<PieceResult> held_;
};

}  // namespace

std::unique_ptr<FileReader> make_faulty_reader(std::unique_ptr<FileReader> reader,
                                               ReaderFaults faults, ReaderFaultCounts* counts) {
    return std::make_unique<FaultyReader>(std::move(reader), std::move(faults), counts);
}

}  // namespace bevy
