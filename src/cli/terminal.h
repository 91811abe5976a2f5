// What a terminal needs to know: its size, how wide text is, and which bytes are safe to show.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bevy {

struct TerminalSize {
    uint32_t columns = 80;
    uint32_t rows = 24;
};

// Of the terminal behind `fd`; 80 x 24 when there is none.
TerminalSize terminal_size(int fd);

// Whether colours and other attributes are wanted: `fd` is a terminal, NO_COLOR is not set and TERM
// is not "dumb".
bool wants_colour(int fd);
// Whether `fd` is a terminal that understands cursor movement.
bool is_live_terminal(int fd);

// The text with control characters (escape sequences included) made visible, except line feeds and
// tabs; a tab becomes blanks. What a model writes must not steer the terminal.
std::string terminal_safe(std::string_view text);

// Columns that a printable text without line feeds takes.
uint32_t display_width(std::string_view text);

// The longest start of `text` that fits; an ellipsis shows that something is missing.
std::string fit(std::string_view text, uint32_t columns);

// The last `lines_max` lines of the text when wrapped to `columns`.
std::vector<std::string> last_lines(std::string_view text, uint32_t columns, uint32_t lines_max);

// The text on one line: line feeds become blanks.
std::string one_line(std::string_view text);

// "[#####.....]" of the given width for part/whole in 0 .. 1.
std::string progress_bar(double part, uint32_t columns);

}  // namespace bevy
