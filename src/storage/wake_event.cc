#include "storage/wake_event.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "storage/errno_text.h"

namespace bevy {

Result<WakeEvent> WakeEvent::create() {
    FileDescriptor event(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event.valid()) {
        return fail(ErrorCode::kIo, "can't create an event descriptor: " + errno_text(errno),
                    "raise the limit of open files (ulimit -n)");
    }
    return WakeEvent(std::move(event));
}

void WakeEvent::signal() const {
    const int saved_errno = errno;
    const uint64_t one = 1;
    // Fails only when the counter is full, and then the latch is set anyway.
    [[maybe_unused]] const ssize_t written = write(event_.get(), &one, sizeof one);
    errno = saved_errno;
}

bool WakeEvent::take() const {
    uint64_t count = 0;
    return read(event_.get(), &count, sizeof count) == sizeof count;
}

}  // namespace bevy
