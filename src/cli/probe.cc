#include "cli/probe.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <numeric>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/prng.h"
#include "storage/file_link.h"
#include "storage/model_files.h"
#include "storage/slot_arena.h"
#include "storage/slot_layout.h"

namespace bevy {
namespace {

// Larger than the caches of most processors.
constexpr size_t kMemoryWords = (size_t{128} << 20) / sizeof(uint64_t);

}  // namespace

Result<LinkProbe> probe_link(const OpenedModel& model, const SessionOptions& options,
                             Duration duration) {
    Result<ModelFiles> files = open_model_files(model.file.paths(), options.link);
    if (!files)
        return std::unexpected(files.error());
    LinkProbe probe;
    probe.direct = files->direct;
    Result<SlotLayout> layout = plan_slot_layout(model.experts.table, files->block);
    if (!layout)
        return std::unexpected(layout.error());
    const uint32_t inflight = options.link.transfers_inflight_max;
    Result<SlotArena> arena = SlotArena::create(layout->slot_bytes, inflight);
    if (!arena)
        return std::unexpected(arena.error());
    const SystemClock clock;
    Result<OpenedLink> opened = make_file_link(std::move(*files), model.experts.table, *layout,
                                               *arena, options.link, clock);
    if (!opened)
        return std::unexpected(opened.error());
    Link& link = *opened->link;
    Prng prng(static_cast<uint64_t>(clock.now().ns));
    const auto start_one = [&](uint32_t ticket) {
        const auto expert = static_cast<uint32_t>(prng.below(model.experts.table.expert_count()));
        link.start(Ticket(ticket), ExpertId(expert), SlotIndex(ticket));
    };
    const Instant begin = clock.now();
    for (uint32_t ticket = 0; ticket < inflight; ++ticket)
        start_one(ticket);
    uint64_t bytes = 0;
    uint32_t running = inflight;
    std::array<LinkCompletion, 16> completions;
    while (running > 0) {
        const size_t count = link.poll(completions);
        if (count == 0)
            link.wait(milliseconds(50));
        for (size_t i = 0; i < count; ++i) {
            if (completions[i].error)
                return std::unexpected(*completions[i].error);
            bytes += completions[i].bytes_read;
            if (clock.now() - begin < duration)
                start_one(completions[i].ticket.value);
            else
                --running;
        }
    }
    probe.bytes_per_second = static_cast<double>(bytes) / (clock.now() - begin).seconds();
    return probe;
}

std::string processor_name() {
    std::ifstream file("/proc/cpuinfo");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("model name") && line.contains(": "))
            return line.substr(line.find(": ") + 2);
    }
    return "an unknown processor";
}

double probe_memory(uint32_t threads, Duration duration) {
    const std::vector<uint64_t> words(kMemoryWords, 1);
    const size_t share = kMemoryWords / threads;
    std::atomic<uint64_t> bytes = 0;
    std::atomic<uint64_t> sink = 0;  // the sums must be used, or nothing is read
    const SystemClock clock;
    const Instant begin = clock.now();
    std::vector<std::jthread> workers;
    for (uint32_t i = 0; i < threads; ++i) {
        workers.emplace_back([&, i] {
            const auto* first = words.data() + i * share;
            while (clock.now() - begin < duration) {
                sink += std::accumulate(first, first + share, uint64_t{0});
                bytes += share * sizeof(uint64_t);
            }
        });
    }
    workers.clear();
    return static_cast<double>(bytes) / (clock.now() - begin).seconds();
}

}  // namespace bevy
