// The one thread that runs the engine, and the door for all other threads.
//
// Order of life: construct, submit from anywhere, drain() to let everything end or stop() to end it
// now. The destructor stops. Link, compute and clock outlive this object.
#pragma once

#include <condition_variable>
#include <cstdint>
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
                                                       TraceRecorder* trace = nullptr,
                                                       RouteRecorder* routes = nullptr);
    ~EngineThread();
    EngineThread(const EngineThread&) = delete;
    EngineThread& operator=(const EngineThread&) = delete;

    // See Engine::submit().
    Result<RequestId> submit(GenerationRequest request);
    // See Engine::cancel().
    bool cancel(RequestId id);

    // Counters and the live view, taken by the engine thread between two turns of its loop. After
    // the end of the thread: the last ones.
    EngineSnapshot snapshot();

    // Refuses new requests and returns when all others have ended by themselves.
    void drain();
    // Cancels every request and returns when the thread has ended. Idempotent.
    void stop();

private:
    EngineThread(std::unique_ptr<Engine> engine, Link& link);
    void run();
    void answer_snapshots(bool ended);

    std::unique_ptr<Engine> engine_;
    Link& link_;
    std::mutex snapshot_mutex_;
    std::condition_variable snapshot_taken_;
    EngineSnapshot snapshot_;
    uint64_t snapshots_wanted_ = 0;
    uint64_t snapshots_answered_ = 0;
    bool ended_ = false;
    std::mutex stop_mutex_;  // one thread joins
    std::thread thread_;
};

}  // namespace bevy
