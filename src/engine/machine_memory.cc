#include "engine/machine_memory.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace bevy {

namespace {

// Left for everybody else: the kernel, the shell, page tables, what grows after we looked.
constexpr uint64_t kMarginBytesMin = 128 * kMiB;
constexpr uint64_t kMarginPart = 20;  // one twentieth
// Control groups without a limit show a number near 2^63 (version 1).
constexpr uint64_t kNoLimit = uint64_t{1} << 60;

std::optional<std::string> read_text(const std::string& path) {
    std::ifstream file(path);
    if (!file)
        return std::nullopt;
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

std::vector<std::string_view> lines_of(std::string_view text) {
    std::vector<std::string_view> lines;
    while (!text.empty()) {
        const size_t end = std::min(text.find('\n'), text.size());
        lines.push_back(text.substr(0, end));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return lines;
}

// The number after `key` and blanks, wherever a line begins with `key`.
std::optional<uint64_t> number_after(std::string_view text, std::string_view key) {
    for (std::string_view line : lines_of(text)) {
        if (!line.starts_with(key))
            continue;
        line.remove_prefix(key.size());
        const size_t digits = line.find_first_not_of(" \t");
        if (digits == line.npos)
            return std::nullopt;
        uint64_t number = 0;
        auto [end, error] =
            std::from_chars(line.data() + digits, line.data() + line.size(), number);
        if (error == std::errc{})
            return number;
        return std::nullopt;
    }
    return std::nullopt;
}

std::optional<uint64_t> read_number(const std::string& path) {
    const std::optional<std::string> text = read_text(path);
    return text ? number_after(*text, "") : std::nullopt;
}

// The names of one version's files.
struct GroupFiles {
    const char* mount;  // below /sys/fs/cgroup
    const char* limit;
    const char* used;
    const char* inactive_file;  // keys of memory.stat, with the blank behind them
    const char* active_file;
};
constexpr GroupFiles kVersion1{"/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                               "total_inactive_file ", "total_active_file "};
constexpr GroupFiles kVersion2{"", "/memory.max", "/memory.current", "inactive_file ",
                               "active_file "};

struct GroupRoom {
    uint64_t limit = 0;
    uint64_t left = 0;
};

// Walks from the process's group up to the root: every level has a limit of its own.
void narrow(std::optional<GroupRoom>& tightest, const std::string& root, const GroupFiles& files,
            std::string group) {
    while (true) {
        std::string directory = root;
        directory += "/sys/fs/cgroup";
        directory += files.mount;
        directory += group;
        const std::optional<uint64_t> limit = read_number(directory + files.limit);
        const std::optional<uint64_t> used = read_number(directory + files.used);
        if (limit && used && *limit < kNoLimit) {
            // The page cache counts as used, but the kernel drops it when the group is full.
            const std::string stat = read_text(directory + "/memory.stat").value_or("");
            const uint64_t cache = number_after(stat, files.inactive_file).value_or(0) +
                                   number_after(stat, files.active_file).value_or(0);
            const uint64_t held = *used - std::min(*used, cache);
            const uint64_t left = *limit - std::min(*limit, held);
            if (!tightest || left < tightest->left)
                tightest = {*limit, left};
        }
        const size_t parent = group.rfind('/');
        if (parent == group.npos)
            return;
        group.resize(parent);
    }
}

std::optional<GroupRoom> tightest_group(const std::string& root) {
    std::optional<GroupRoom> tightest;
    const std::string groups = read_text(root + "/proc/self/cgroup").value_or("");
    for (std::string_view line : lines_of(groups)) {
        // "hierarchy:controllers:/path"; version 2 has no controllers.
        const size_t first = line.find(':');
        const size_t second = line.find(':', first + 1);
        if (first == line.npos || second == line.npos)
            continue;
        const std::string_view controllers = line.substr(first + 1, second - first - 1);
        std::string path(line.substr(second + 1));
        if (path == "/")
            path.clear();
        if (controllers.empty())
            narrow(tightest, root, kVersion2, path);
        else if (("," + std::string(controllers) + ",").contains(",memory,"))
            narrow(tightest, root, kVersion1, path);
    }
    return tightest;
}

}  // namespace

Result<MachineMemory> detect_machine_memory(const std::string& root) {
    const std::string path = root + "/proc/meminfo";
    const std::optional<uint64_t> available_kib =
        number_after(read_text(path).value_or(""), "MemAvailable:");
    if (!available_kib)
        return fail(ErrorCode::kUnsupported, path + " does not say how much memory is available",
                    "name a budget with --memory");
    MachineMemory memory{.available_bytes = *available_kib * kKiB, .source = "MemAvailable"};
    uint64_t left = memory.available_bytes;
    if (const std::optional<GroupRoom> group = tightest_group(root)) {
        memory.group_limit_bytes = group->limit;
        memory.group_left_bytes = group->left;
        if (group->left < left) {
            left = group->left;
            memory.source = "control group limit";
        }
    }
    const uint64_t margin = std::max(kMarginBytesMin, left / kMarginPart);
    memory.budget_bytes = left - std::min(left, margin);
    return memory;
}

}  // namespace bevy
