#include "engine/engine_thread.h"

#include <utility>

namespace bevy {

Result<std::unique_ptr<EngineThread>> EngineThread::start(const EngineConfig& config, Link& link,
                                                          Compute& compute, const Clock& clock,
                                                          TraceRecorder* trace,
                                                          RouteRecorder* routes) {
    Result<std::unique_ptr<Engine>> engine =
        Engine::create(config, link, compute, clock, trace, routes);
    if (!engine)
        return std::unexpected(std::move(engine.error()));
    return std::unique_ptr<EngineThread>(new EngineThread(std::move(*engine), link));
}

EngineThread::EngineThread(std::unique_ptr<Engine> engine, Link& link)
    : engine_(std::move(engine)), link_(link), thread_([this] { run(); }) {}

EngineThread::~EngineThread() {
    stop();
}

Result<RequestId> EngineThread::submit(GenerationRequest request) {
    return engine_->submit(std::move(request));
}

bool EngineThread::cancel(RequestId id) {
    return engine_->cancel(id);
}

EngineSnapshot EngineThread::snapshot() {
    std::unique_lock lock(snapshot_mutex_);
    const uint64_t wanted = ++snapshots_wanted_;
    link_.wake();
    snapshot_taken_.wait(lock, [&] { return ended_ || snapshots_answered_ >= wanted; });
    return snapshot_;
}

void EngineThread::drain() {
    engine_->close();
    engine_->wait_until_empty();
    stop();
}

void EngineThread::stop() {
    engine_->stop();
    std::lock_guard lock(stop_mutex_);
    if (thread_.joinable())
        thread_.join();
}

void EngineThread::run() {
    while (!engine_->done()) {
        engine_->step();
        answer_snapshots(false);
    }
    answer_snapshots(true);
}

void EngineThread::answer_snapshots(bool ended) {
    std::lock_guard lock(snapshot_mutex_);
    if (!ended && snapshots_answered_ == snapshots_wanted_)
        return;
    snapshot_ = engine_->snapshot();
    snapshots_answered_ = snapshots_wanted_;
    ended_ = ended;
    snapshot_taken_.notify_all();
}

}  // namespace bevy
