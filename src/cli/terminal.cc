#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

namespace bevy {
namespace {

struct Glyph {
    uint32_t point = 0;
    size_t bytes = 1;
};

// The code point at `at`; an invalid byte counts as one glyph.
Glyph glyph_at(std::string_view text, size_t at) {
    const auto lead = static_cast<uint8_t>(text[at]);
    const size_t bytes = lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    if (bytes == 1 || at + bytes > text.size())
        return {lead, 1};
    uint32_t point = lead & (0x7Fu >> bytes);
    for (size_t i = 1; i < bytes; ++i)
        point = point << 6 | (static_cast<uint8_t>(text[at + i]) & 0x3Fu);
    return {point, bytes};
}

struct PointRange {
    uint32_t first;
    uint32_t last;
};

template <size_t N>
bool within(const std::array<PointRange, N>& ranges, uint32_t point) {
    return std::ranges::any_of(
        ranges, [&](const PointRange& r) { return point >= r.first && point <= r.last; });
}

// The blocks that matter in practice, not the whole of UAX #11.
uint32_t glyph_width(uint32_t point) {
    static constexpr std::array<PointRange, 7> kNone = {{{0x300, 0x36F},
                                                         {0x200B, 0x200F},
                                                         {0x20D0, 0x20FF},
                                                         {0xFE00, 0xFE0F},
                                                         {0x1F3FB, 0x1F3FF},
                                                         {0xE0100, 0xE01EF},
                                                         {0xFEFF, 0xFEFF}}};
    static constexpr std::array<PointRange, 10> kTwo = {{{0x1100, 0x115F},
                                                         {0x2E80, 0x303E},
                                                         {0x3041, 0xA4CF},
                                                         {0xAC00, 0xD7A3},
                                                         {0xF900, 0xFAFF},
                                                         {0xFE30, 0xFE6F},
                                                         {0xFF00, 0xFF60},
                                                         {0xFFE0, 0xFFE6},
                                                         {0x1F300, 0x1FAFF},
                                                         {0x20000, 0x3FFFD}}};
    if (point < 0x300)
        return 1;
    return within(kNone, point) ? 0 : within(kTwo, point) ? 2 : 1;
}

}  // namespace

TerminalSize terminal_size(int fd) {
    winsize size = {};
    if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
        return {};
    return {size.ws_col, size.ws_row};
}

bool is_live_terminal(int fd) {
    const char* term = std::getenv("TERM");
    return isatty(fd) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

bool wants_colour(int fd) {
    const char* no_color = std::getenv("NO_COLOR");
    return is_live_terminal(fd) && (no_color == nullptr || *no_color == '\0');
}

std::string terminal_safe(std::string_view text) {
    std::string shown;
    for (size_t at = 0; at < text.size();) {
        const Glyph glyph = glyph_at(text, at);
        if (glyph.point == '\t') {
            shown += "    ";
        } else if (glyph.point == '\n' || (glyph.point >= 0x20 && glyph.point < 0x7F) ||
                   glyph.point >= 0xA0) {
            shown += text.substr(at, glyph.bytes);
        } else if (glyph.point != '\r') {
            shown += "\xEF\xBF\xBD";
        }
        at += glyph.bytes;
    }
    return shown;
}

uint32_t display_width(std::string_view text) {
    uint32_t columns = 0;
    for (size_t at = 0; at < text.size();) {
        const Glyph glyph = glyph_at(text, at);
        columns += glyph_width(glyph.point);
        at += glyph.bytes;
    }
    return columns;
}

std::string fit(std::string_view text, uint32_t columns) {
    if (display_width(text) <= columns)
        return std::string(text);
    if (columns == 0)
        return {};
    uint32_t used = 0;
    size_t at = 0;
    while (at < text.size()) {
        const Glyph glyph = glyph_at(text, at);
        const uint32_t width = glyph_width(glyph.point);
        if (used + width > columns - 1)
            break;
        used += width;
        at += glyph.bytes;
    }
    return std::string(text.substr(0, at)) + "\xE2\x80\xA6";
}

std::vector<std::string> last_lines(std::string_view text, uint32_t columns, uint32_t lines_max) {
    columns = std::max(columns, 2u);
    // Only the end of a long text can be seen; four bytes make at least one column or none.
    const size_t bytes_max = size_t{8} * columns * std::max(lines_max, 1u);
    if (text.size() > bytes_max) {
        size_t from = text.size() - bytes_max;
        while (from < text.size() && (static_cast<uint8_t>(text[from]) & 0xC0) == 0x80)
            ++from;
        text.remove_prefix(from);
    }
    std::vector<std::string> lines(1);
    uint32_t used = 0;
    for (size_t at = 0; at < text.size();) {
        const Glyph glyph = glyph_at(text, at);
        const uint32_t width = glyph.point == '\n' ? 0 : glyph_width(glyph.point);
        if (glyph.point == '\n' || used + width > columns) {
            lines.emplace_back();
            used = 0;
        }
        if (glyph.point != '\n') {
            lines.back() += text.substr(at, glyph.bytes);
            used += width;
        }
        at += glyph.bytes;
    }
    while (lines.size() > 1 && lines.back().empty())
        lines.pop_back();
    if (lines.size() > lines_max)
        lines.erase(lines.begin(), lines.end() - lines_max);
    return lines;
}

std::string one_line(std::string_view text) {
    std::string line = terminal_safe(text);
    std::ranges::replace(line, '\n', ' ');
    return line;
}

std::string progress_bar(double part, uint32_t columns) {
    const uint32_t inner = std::max(columns, 3u) - 2;
    const double clamped = std::clamp(part, 0.0, 1.0);
    const auto full = static_cast<uint32_t>(std::lround(clamped * inner));
    return "[" + std::string(full, '#') + std::string(inner - full, '.') + "]";
}

}  // namespace bevy
