// Ctrl-C and its kin: the first asks for a clean end, the second ends at once.
//
// The handler only counts; whoever loops looks at interrupted().
#pragma once

namespace bevy {

// Handles SIGINT and SIGTERM, ignores SIGPIPE (writing to a closed pipe is an error value then).
void install_interrupt_handler();
// Whether a signal has come since the start or the last clear.
bool interrupted();
// Forgets it: the next one counts as the first again.
void clear_interrupt();
// Whether an exit at once has to show the cursor of the terminal on stdout again.
void set_cursor_hidden(bool hidden);

}  // namespace bevy
