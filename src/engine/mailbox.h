// The one place where other threads meet the engine: a bounded queue of requests, and who wants
// what to end. Everything that crosses is copied or moved under one lock, held for a few
// instructions.
//
// It also knows which requests are alive (submitted, on_finish() not returned), so that a
// cancellation of an unknown request is harmless and draining has something to wait for.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "base/ids.h"
#include "engine/generation.h"
#include "storage/link.h"

namespace bevy {

struct Submission {
    RequestId id;
    GenerationRequest request;
    Instant submitted;
};

class Mailbox {
public:
    // Wakes `link` when there is mail. `queue_max`: requests that may lie here at once.
    Mailbox(uint32_t queue_max, Link& link, const Clock& clock);

    // Any thread. kQueueFull when there is no room, kCancelled after close() or stop().
    Result<RequestId> submit(GenerationRequest request);
    // Any thread. False: no such request is alive (any more).
    bool cancel(RequestId id);
    // Any thread. No more requests from now on; those that are alive go on.
    void close();
    // Any thread, after close(): returns when no request is alive.
    void wait_until_empty();
    // Any thread. close(), and everything that is alive is to be cancelled.
    void stop();

    // Engine thread.
    std::optional<Submission> take_request();
    // Ids may be those of requests that have ended meanwhile, or that still lie here.
    std::vector<RequestId> take_cancellations();
    // Takes one request out of the queue, wherever it lies in it.
    std::optional<Submission> withdraw(RequestId id);
    bool stopping() const;
    // The request's on_finish() has returned.
    void finished(RequestId id);

private:
    mutable std::mutex mutex_;
    std::condition_variable empty_;
    std::deque<Submission> queue_;
    std::vector<RequestId> cancellations_;
    std::map<RequestId, bool> alive_;  // true: its cancellation is in, or was taken from, the list
    uint64_t ids_used_ = 0;
    bool closed_ = false;
    bool stopping_ = false;
    const uint32_t queue_max_;
    Link& link_;
    const Clock& clock_;
};

}  // namespace bevy
