#include "storage/aligned_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <format>
#include <vector>

#include "base/units.h"
#include "storage/errno_text.h"

namespace bevy {

namespace {

constexpr uint64_t kHugePage = 2 * kMiB;
constexpr uint64_t kMappingMax = uint64_t{1} << 46;  // below every user address space

uint64_t page_bytes() {
    return static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

std::unexpected<Error> no_memory(uint64_t bytes, std::string_view purpose, std::string_view cause) {
    return fail(
        ErrorCode::kBudget,
        std::format("can't get {} of memory for {}: {}", format_bytes(bytes), purpose, cause),
        "choose a smaller --memory or --expert-cache, or raise the memory limit");
}

}  // namespace

Result<AlignedMemory> AlignedMemory::create(uint64_t bytes, std::string_view purpose) {
    AlignedMemory result;
    if (bytes == 0)
        return result;
    if (bytes > kMappingMax)
        return no_memory(bytes, purpose, "larger than the address space");
    const uint64_t length = round_up(bytes, page_bytes());
    const uint64_t mapped = length + kHugePage;
    void* start = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (start == MAP_FAILED)
        return no_memory(bytes, purpose, errno_text(errno));
    // Cut the mapping down to an aligned middle part.
    auto* first = static_cast<std::byte*>(start);
    const auto address = reinterpret_cast<uintptr_t>(start);
    const uint64_t before = round_up(address, kHugePage) - address;
    if (before > 0)
        munmap(first, before);
    munmap(first + before + length, mapped - before - length);
    result.memory_ = {first + before, length};
    // Fewer page faults and fewer pages to pin per read; works without, so failure is of no
    // interest.
    madvise(result.memory_.data(), length, MADV_HUGEPAGE);
    return result;
}

AlignedMemory::~AlignedMemory() {
    if (!memory_.empty())
        munmap(memory_.data(), memory_.size());
}

Status AlignedMemory::populate() {
    if (memory_.empty())
        return {};
    if (madvise(memory_.data(), memory_.size(), MADV_POPULATE_WRITE) == 0)
        return {};
    if (errno != EINVAL)
        return no_memory(memory_.size(), "resident buffers", errno_text(errno));
    // Kernels before 5.14: touch by hand, keeping what is there.
    const uint64_t page = page_bytes();
    for (uint64_t at = 0; at < memory_.size(); at += page) {
        volatile std::byte* byte = memory_.data() + at;
        *byte = *byte;
    }
    return {};
}

uint64_t AlignedMemory::resident_bytes() const {
    const uint64_t page = page_bytes();
    constexpr uint64_t kPagesAtOnce = 1 << 16;
    std::vector<unsigned char> state(kPagesAtOnce);
    uint64_t resident = 0;
    for (uint64_t at = 0; at < memory_.size(); at += kPagesAtOnce * page) {
        const uint64_t length = std::min(kPagesAtOnce * page, memory_.size() - at);
        if (mincore(memory_.data() + at, length, state.data()) != 0)
            return resident;
        resident += page * static_cast<uint64_t>(std::count_if(
                               state.begin(), state.begin() + static_cast<ptrdiff_t>(length / page),
                               [](unsigned char flags) { return (flags & 1) != 0; }));
    }
    return resident;
}

}  // namespace bevy
