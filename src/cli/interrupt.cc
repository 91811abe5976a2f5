#include "cli/interrupt.h"

#include <unistd.h>
#include <csignal>

#include <atomic>

namespace bevy {
namespace {

std::atomic<int> signals_seen = 0;
std::atomic<bool> cursor_hidden = false;
static_assert(std::atomic<int>::is_always_lock_free);

void on_signal(int) {
    if (signals_seen.fetch_add(1) == 0)
        return;
    if (cursor_hidden) {
        constexpr char kShowCursor[] = "\x1b[?25h\x1b[0m\n";
        [[maybe_unused]] const ssize_t written =
            write(STDOUT_FILENO, kShowCursor, sizeof kShowCursor - 1);
    }
    _exit(130);
}

}  // namespace

void install_interrupt_handler() {
    struct sigaction action = {};
    action.sa_handler = on_signal;
    sigemptyset(&action.sa_mask);
    action.sa_flags = 0;  // no SA_RESTART: reading a line from the terminal must end
    sigaction(SIGINT, &action, nullptr);
    sigaction(SIGTERM, &action, nullptr);
    signal(SIGPIPE, SIG_IGN);
}

bool interrupted() {
    return signals_seen > 0;
}
void clear_interrupt() {
    signals_seen = 0;
}
void set_cursor_hidden(bool hidden) {
    cursor_hidden = hidden;
}

}  // namespace bevy
