// Writes what the engine did when, as trace events that Perfetto and chrome://tracing show.
//
// Tracks: the link (one per ticket), the compute, and one per request. Events stream through a
// small buffer, so memory does not grow. After every flush the file is complete JSON: the closing
// brackets are written behind the events and overwritten by the next flush. The first error of the
// file ends the recording; close() reports it once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/ids.h"
#include "base/units.h"

namespace bevy {

// One thread at a time.
class TraceRecorder {
public:
    static Result<std::unique_ptr<TraceRecorder>> open(const std::string& path);
    ~TraceRecorder();
    TraceRecorder(const TraceRecorder&) = delete;
    TraceRecorder& operator=(const TraceRecorder&) = delete;

    struct Read {
        Ticket ticket;
        ExpertId expert;
        LayerIndex layer;
        SlotIndex slot;
        uint64_t bytes = 0;
        bool ok = true;
        Instant started;
        Instant finished;
    };
    void read(const Read& read);

    struct Step {
        uint32_t stage = 0;
        uint32_t sequences = 0;  // that advanced
        uint32_t experts = 0;    // distinct
        uint32_t uses = 0;
        Instant started;
        Instant finished;
    };
    void step(const Step& step);

    // Names the request's track and begins its outermost span.
    void request_arrived(RequestId request, uint32_t prompt_tokens, Instant at);
    // A span of a request's life that others lie within ("prefill", "decode"). request_end() ends
    // the innermost one that is open; they pair like brackets, request_arrived() included.
    void request_begin(RequestId request, std::string_view name, Instant at);
    void request_end(RequestId request, Instant at);
    // A span without inner ones ("queued", "waiting", "ready", "computing").
    void request_span(RequestId request, std::string_view name, Instant from, Instant to);

    // Writes what is buffered, and ends the recording. The first error since open(), once.
    Status close();

private:
    explicit TraceRecorder(int fd, std::string path);
    void add(const char* format, ...) __attribute__((format(printf, 2, 3)));
    void flush();

    int fd_;
    std::string path_;
    std::string buffer_;
    uint64_t offset_ = 0;         // where the next event goes: the closing brackets begin here
    uint32_t tickets_named_ = 0;  // tickets below have a named track
    Status status_;
};

}  // namespace bevy
