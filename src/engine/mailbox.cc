#include "engine/mailbox.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/assert.h"

namespace bevy {

Mailbox::Mailbox(uint32_t queue_max, Link& link, const Clock& clock)
    : queue_max_(queue_max), link_(link), clock_(clock) {
    BEVY_ASSERT(queue_max > 0);
}

Result<RequestId> Mailbox::submit(GenerationRequest request) {
    RequestId id;
    {
        std::lock_guard lock(mutex_);
        if (closed_)
            return fail(ErrorCode::kCancelled, "the engine is shutting down");
        if (queue_.size() >= queue_max_)
            return fail(
                ErrorCode::kQueueFull,
                "the queue of waiting requests is full (" + std::to_string(queue_max_) + ")",
                "send the request again later, or raise the queue limit");
        id = RequestId(++ids_used_);
        alive_.emplace(id, false);
        queue_.push_back({id, std::move(request), clock_.now()});
    }
    link_.wake();
    return id;
}

bool Mailbox::cancel(RequestId id) {
    {
        std::lock_guard lock(mutex_);
        auto found = alive_.find(id);
        if (found == alive_.end())
            return false;
        // Asked once or often, the list holds it once: that bounds the list.
        if (std::exchange(found->second, true))
            return true;
        cancellations_.push_back(id);
    }
    link_.wake();
    return true;
}

void Mailbox::close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
}

void Mailbox::wait_until_empty() {
    std::unique_lock lock(mutex_);
    empty_.wait(lock, [&] { return alive_.empty(); });
}

void Mailbox::stop() {
    {
        std::lock_guard lock(mutex_);
        closed_ = true;
        stopping_ = true;
    }
    link_.wake();
}

std::optional<Submission> Mailbox::take_request() {
    std::lock_guard lock(mutex_);
    if (queue_.empty())
        return std::nullopt;
    Submission submission = std::move(queue_.front());
    queue_.pop_front();
    return submission;
}

std::vector<RequestId> Mailbox::take_cancellations() {
    std::lock_guard lock(mutex_);
    return std::exchange(cancellations_, {});
}

std::optional<Submission> Mailbox::withdraw(RequestId id) {
    std::lock_guard lock(mutex_);
    auto found = std::ranges::find(queue_, id, &Submission::id);
    if (found == queue_.end())
        return std::nullopt;
    Submission submission = std::move(*found);
    queue_.erase(found);
    return submission;
}

bool Mailbox::stopping() const {
    std::lock_guard lock(mutex_);
    return stopping_;
}

void Mailbox::finished(RequestId id) {
    std::lock_guard lock(mutex_);
    alive_.erase(id);
    if (alive_.empty())
        empty_.notify_all();
}

}  // namespace bevy
