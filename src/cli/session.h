// A model, ready to generate: opened, planned into memory, connected and running.
//
// open() does, in this order: read the file's header; choose the context; open the shards for
// reading; plan slots and memory; load resident weights; make arena, link, compute and engine. The
// destructor stops the engine and takes all down in the opposite order.
// Threads: open() and close() one thread; the rest any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "cli/opened_model.h"
#include "cli/options.h"
#include "compute/compute.h"
#include "engine/engine_thread.h"
#include "engine/memory_plan.h"
#include "storage/link.h"
#include "text/llama_vocabulary.h"

namespace bevy {

// What open() tells while it works.
struct SessionEvents {
    std::function<void(const std::string& message)> notice;
    // Bytes of resident weights read so far, and in all.
    std::function<void(uint64_t done, uint64_t total)> loading;
    // Wraps the link, for tests that want it slow or faulty. May be empty.
    std::function<std::unique_ptr<Link>(std::unique_ptr<Link>)> decorate_link;
    // The same for the compute, for those who want to see its steps.
    std::function<std::unique_ptr<Compute>(std::unique_ptr<Compute>)> decorate_compute;
};

class Session {
public:
    static Result<std::unique_ptr<Session>> open(const SessionOptions& options,
                                                 const SessionEvents& events);
    ~Session();
    Session(const Session&) = delete;
    Session& operator=(const Session&) = delete;

    const LlamaVocabulary& vocabulary() const;
    EngineThread& engine();
    uint32_t context() const;
    const MemoryPlan& plan() const;
    const OpenedModel& model() const;

    // Cancels what still runs, stops the engine and writes timeline and routes. Error: one of them
    // could not be written.
    Status close();

private:
    struct Parts;
    explicit Session(std::unique_ptr<Parts> parts);
    std::unique_ptr<Parts> parts_;
};

// The plan for a model under the options, without loading anything: for inspect and for open().
Result<MemoryPlan> plan_session(const OpenedModel& model, const SessionOptions& options);

}  // namespace bevy
