// A latch that ends a sleep: signal() may come from any thread or a signal handler, before or
// during the sleep, any number of times; one take() consumes them all. Built on eventfd, so that
// io_uring and poll(2) can watch it.
#pragma once

#include "base/error.h"
#include "storage/file_descriptor.h"

namespace bevy {

class WakeEvent {
public:
    static Result<WakeEvent> create();

    // Any thread; async-signal-safe.
    void signal() const;
    // True if signalled since the last take(). Does not block.
    bool take() const;
    // Readable while signalled.
    int fd() const { return event_.get(); }

private:
    explicit WakeEvent(FileDescriptor event) : event_(std::move(event)) {}

    FileDescriptor event_;
};

}  // namespace bevy
