// The one thread that runs the engine, and the door for all other threads.
//
// Order of life: construct, submit from anywhere, drain() to let everything end or stop() to end it
// now. The destructor stops. Link, compute and clock outlive this object.
#pragma once

#include <memory>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/ids.h"
#include "engine/engine.h"

namespace bevy {

// All functions: any thread, except that stop(), drain() and the destructor must not be called by a
// sink.
class EngineThread {
public:
    // Checks the configuration and starts the thread.
    static Result<std::unique_ptr<EngineThread>> start(const EngineConfig& config, Link& link,
                                                       Compute& compute, const Clock& clock,
                                                       TraceRecorder* trace = nullptr);
    ~EngineThread();
    EngineThread(const EngineThread&) = delete;
    EngineThread& operator=(const EngineThread&) = delete;

    // See Engine::submit().
    Result<RequestId> submit(GenerationRequest request);
    // See Engine::cancel().
    bool cancel(RequestId id);

    // Counters and the live view, at most kSnapshotInterval old while the engine works.
    EngineSnapshot snapshot() const;

    // Refuses new requests and returns when all others have ended by themselves.
    void drain();
    // Cancels every request and returns when the thread has ended. Idempotent.
    void stop();

    static constexpr Duration kSnapshotInterval = milliseconds(20);

private:
    explicit EngineThread(std::unique_ptr<Engine> engine, const Clock& clock);
    void run();
    void publish();

    std::unique_ptr<Engine> engine_;
    const Clock& clock_;
    mutable std::mutex snapshot_mutex_;
    EngineSnapshot snapshot_;
    std::mutex stop_mutex_;  // one thread joins
    std::thread thread_;
};

}  // namespace bevy
