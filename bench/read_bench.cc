// How fast experts come off a disk: the link's throughput on one big file, and the fio command that
// measures the same disk in the same way.
//
//   bevy_read_bench FILE [name=value ...]
//
// The file's contents do not matter; it should be much larger than any cache of the disk. Experts
// are drawn at random, and the slots are few, as in a model that is larger than memory.
#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "base/prng.h"
#include "base/registry.h"
#include "storage/file_link.h"
#include "storage/reader_registry.h"
#include "storage/slot_layout.h"

namespace bevy {
namespace {

struct BenchOptions {
    std::string path;
    LinkOptions link;
    uint64_t slice_bytes = kMiB;  // an expert has three
    uint64_t slots = 64;
    uint64_t shift = 96;  // where the first expert starts, as tensors of a GGUF file do
    uint64_t seconds = 3;
};

[[noreturn]] void give_up(const Error& error) {
    std::fprintf(stderr, "%s\n", error.text().c_str());
    std::exit(1);
}

template <class T>
T value_or_exit(Result<T> result) {
    if (!result)
        give_up(result.error());
    return std::move(*result);
}

void print_usage() {
    std::puts(
        "usage: bevy_read_bench FILE [name=value ...]\n"
        "  io=auto|uring|pread  direct=auto|on|off  slice=1MiB  piece=1MiB  pieces=8  transfers=4\n"
        "  slots=64  shift=96  seconds=3  register=1");
}

void set_option(BenchOptions& options, std::string_view name, std::string_view value) {
    const auto number = [&] { return value_or_exit(parse_bytes(value)); };
    if (name == "io") {
        options.link.io = value_or_exit(registry_find(reader_rows(), "backend", value))->value;
    } else if (name == "direct") {
        const std::span<const DirectIoRow> rows = kDirectIoRows;
        options.link.direct = value_or_exit(registry_find(rows, "direct I/O mode", value))->value;
    } else if (name == "slice") {
        options.slice_bytes = number();
    } else if (name == "piece") {
        options.link.piece_bytes = number();
    } else if (name == "pieces") {
        options.link.pieces_inflight_max = static_cast<uint32_t>(number());
    } else if (name == "transfers") {
        options.link.transfers_inflight_max = static_cast<uint32_t>(number());
    } else if (name == "slots") {
        options.slots = number();
    } else if (name == "shift") {
        options.shift = number();
    } else if (name == "seconds") {
        options.seconds = number();
    } else if (name == "register") {
        options.link.register_buffers = number() != 0;
    } else {
        print_usage();
        std::exit(2);
    }
}

// One layer whose three slices fill the file.
ExpertTable table_of(const BenchOptions& options, uint64_t file_bytes) {
    ExpertTable table;
    const uint64_t room = file_bytes - std::min(file_bytes, 3 * (options.shift + 64));
    table.experts_per_layer = static_cast<uint32_t>(room / 3 / options.slice_bytes);
    LayerExperts layer;
    for (uint64_t s = 0; s < 3; ++s) {
        const uint64_t begin = s * table.experts_per_layer * options.slice_bytes;
        layer.slices.push_back({0, round_up(begin, 32) + options.shift, options.slice_bytes});
    }
    table.layers.push_back(layer);
    return table;
}

struct Measured {
    uint64_t expert_bytes = 0;
    uint64_t read_bytes = 0;
    double seconds = 0;
};

Measured measure(Link& link, const ExpertTable& table, uint64_t slots, Duration length) {
    const SystemClock clock;
    Prng prng(1);
    const uint32_t tickets = link.transfers_inflight_max();
    std::vector<LinkCompletion> done(tickets);
    uint32_t inflight = 0;
    const auto start = [&](Ticket ticket) {
        // A ticket has slots of its own, so that no two transfers meet in one.
        const uint64_t own = std::max<uint64_t>(slots / tickets, 1);
        link.start(ticket, ExpertId(static_cast<uint32_t>(prng.below(table.expert_count()))),
                   SlotIndex(static_cast<uint32_t>(ticket.value * own + prng.below(own))));
        ++inflight;
    };
    const Instant begin = clock.now();
    for (uint32_t t = 0; t < tickets; ++t)
        start(Ticket(t));
    Measured result;
    while (inflight > 0) {
        link.wait(milliseconds(1000));
        const size_t count = link.poll(done);
        for (size_t i = 0; i < count; ++i) {
            --inflight;
            if (done[i].error)
                give_up(*done[i].error);
            result.expert_bytes += table.layers[0].bytes_per_expert();
            result.read_bytes += done[i].bytes_read;
            if (clock.now() - begin < length)
                start(done[i].ticket);
        }
    }
    result.seconds = (clock.now() - begin).seconds();
    return result;
}

int run(const BenchOptions& options) {
    const SystemClock clock;
    ModelFiles files = value_or_exit(open_model_files(std::array{options.path}, options.link));
    const ExpertTable table = table_of(options, files.files[0].bytes);
    if (table.experts_per_layer == 0)
        give_up({ErrorCode::kInvalidArgument, "the file is smaller than one expert", {}});
    const SlotLayout layout = value_or_exit(plan_slot_layout(table, files.block));
    const uint64_t slots = std::max<uint64_t>(options.slots, options.link.transfers_inflight_max);
    SlotArena arena =
        value_or_exit(SlotArena::create(layout.slot_bytes, static_cast<uint32_t>(slots)));
    // First touches would be measured with the first round of reads otherwise.
    if (Status populated = arena.populate(); !populated)
        give_up(populated.error());
    for (const std::string& notice : files.notices)
        std::printf("notice: %s\n", notice.c_str());
    const uint64_t block = files.block;
    OpenedLink opened =
        value_or_exit(make_file_link(std::move(files), table, layout, arena, options.link, clock));
    for (const std::string& notice : opened.notices)
        std::printf("notice: %s\n", notice.c_str());

    const Measured measured = measure(*opened.link, table, slots,
                                      milliseconds(static_cast<int64_t>(options.seconds) * 1000));
    const double gigabytes = static_cast<double>(measured.expert_bytes) * 1e-9;
    std::printf(
        "%s block=%llu %s slice=%s piece=%s pieces=%u transfers=%u: %.3f GB/s of experts, "
        "%.1f %% read around them\n",
        std::string(opened.backend).c_str(), static_cast<unsigned long long>(block),
        layout.layers[0][0].direct ? "in place" : "by copy",
        format_bytes(options.slice_bytes).c_str(), format_bytes(options.link.piece_bytes).c_str(),
        options.link.pieces_inflight_max, options.link.transfers_inflight_max,
        gigabytes / measured.seconds,
        100.0 *
            (static_cast<double>(measured.read_bytes) / static_cast<double>(measured.expert_bytes) -
             1.0));
    std::printf(
        "compare: fio --name=x --filename=%s --rw=randread --bs=%llu --iodepth=%u "
        "--ioengine=%s --direct=%d --runtime=%llu --time_based --norandommap\n",
        options.path.c_str(),
        static_cast<unsigned long long>(
            std::min(options.link.piece_bytes, round_up(options.slice_bytes, block))),
        options.link.pieces_inflight_max, opened.backend == "uring" ? "io_uring" : "psync",
        block > 1 ? 1 : 0, static_cast<unsigned long long>(options.seconds));
    return 0;
}

}  // namespace
}  // namespace bevy

int main(int argc, char** argv) {
    bevy::BenchOptions options;
    if (argc < 2) {
        bevy::print_usage();
        return 2;
    }
    options.path = argv[1];
    for (int i = 2; i < argc; ++i) {
        const std::string_view argument = argv[i];
        const size_t equals = std::min(argument.find('='), argument.size());
        bevy::set_option(options, argument.substr(0, equals),
                         argument.substr(std::min(equals + 1, argument.size())));
    }
    return bevy::run(options);
}
