#include "cli/report.h"

#include <sys/resource.h>

#include <algorithm>
#include <format>
#include <string_view>

#include "base/clock.h"
#include "base/units.h"
#include "cli/command.h"
#include "cli/terminal.h"

namespace bevy {

namespace {

constexpr Duration kLineInterval = milliseconds(2000);

}  // namespace

void print_table(std::FILE* out, const std::string& title,
                 const std::vector<std::pair<std::string, std::string>>& rows) {
    size_t name_columns = 0;
    for (const auto& [name, value] : rows)
        name_columns = std::max<size_t>(name_columns, display_width(name));
    if (!title.empty())
        std::fprintf(out, "%s\n", title.c_str());
    for (const auto& [name, value] : rows) {
        const std::string padding(name_columns - display_width(name), ' ');
        std::fprintf(out, "  %s%s  %s\n", name.c_str(), padding.c_str(), value.c_str());
    }
}

void print_memory_plan(std::FILE* out, const MemoryPlan& plan) {
    std::vector<std::pair<std::string, std::string>> rows;
    for (const MemoryRow& row : memory_rows(plan))
        rows.emplace_back(row.name, std::format("{:>10}  {}", format_bytes(row.bytes), row.note));
    print_table(out, "memory plan", rows);
    for (const std::string& warning : plan.warnings)
        std::fprintf(out, "  warning: %s\n", warning.c_str());
}

void print_summary(std::FILE* out, const EngineStats& stats) {
    std::vector<std::pair<std::string, std::string>> rows;
    for (const StatRow& row : stat_rows(stats))
        rows.emplace_back(row.name, row.value);
    rows.emplace_back("peak resident memory", format_bytes(peak_resident_bytes()));
    print_table(out, "summary", rows);
}

uint64_t peak_resident_bytes() {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<uint64_t>(usage.ru_maxrss) * kKiB;
}

void restart_peak_resident_bytes() {
    constexpr std::string_view kRestart = "5";
    if (std::FILE* file = std::fopen("/proc/self/clear_refs", "w")) {
        std::fwrite(kRestart.data(), 1, kRestart.size(), file);
        std::fclose(file);
    }
}

Status write_text_file(const std::string& path, const std::string& text) {
    std::FILE* file = std::fopen(path.c_str(), "w");
    const bool written =
        file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    const bool closed = file != nullptr && std::fclose(file) == 0;
    if (!written || !closed)
        return fail(ErrorCode::kIo, "cannot write " + path,
                    "name a file in a directory that you may write to");
    return {};
}

bool print_output(const std::string& text) {
    const bool shown =
        std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    if (!shown)
        print_usage_error("the output could not be written",
                          "is its disk full, or has its reader gone?");
    return shown;
}

ProgressLine::ProgressLine(std::FILE* out, std::string what, bool quiet, Unit unit)
    : out_(out),
      what_(std::move(what)),
      quiet_(quiet),
      unit_(unit),
      live_(is_live_terminal(fileno(out))),
      shown_at_(SystemClock().now()) {}

ProgressLine::~ProgressLine() {
    if (drawn_ && live_)
        std::fputs("\r\x1b[K", out_);
    std::fflush(out_);
}

void ProgressLine::update(uint64_t done, uint64_t total) {
    const double part = total == 0 ? 1.0 : static_cast<double>(done) / static_cast<double>(total);
    const int percent = static_cast<int>(part * 100);
    if (quiet_ || percent == shown_percent_)
        return;
    // Lines stay, so only long work writes some; a bar may move at every per cent.
    const Instant now = SystemClock().now();
    if (!live_ && now - shown_at_ < kLineInterval)
        return;
    shown_percent_ = percent;
    shown_at_ = now;
    drawn_ = true;
    const std::string amount =
        unit_ == Unit::kBytes ? std::format("{} of {}", format_bytes(done), format_bytes(total))
                              : std::format("{} of {}", done, total);
    if (live_) {
        const uint32_t columns = std::max(terminal_size(fileno(out_)).columns, 20u) - 1;
        const std::string text = what_ + " " + progress_bar(part, 30) + " " + amount;
        std::fprintf(out_, "\r\x1b[K%s", fit(text, columns).c_str());
    } else {
        std::fprintf(out_, "%s: %s\n", what_.c_str(), amount.c_str());
    }
    std::fflush(out_);
}

}  // namespace bevy
