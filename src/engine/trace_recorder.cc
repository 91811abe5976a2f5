#include "engine/trace_recorder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <utility>

namespace bevy {

namespace {

constexpr size_t kBufferBytes = 64 * kKiB;
constexpr std::string_view kHead = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
constexpr std::string_view kTail = "\n]}\n";

// The viewer's "processes".
constexpr int kRequests = 1;
constexpr int kCompute = 2;
constexpr int kLink = 3;

// Trace events count in microseconds; the digits behind the point keep the nanoseconds.
struct Micros {
    char text[32];
    explicit Micros(int64_t ns) {
        std::snprintf(text, sizeof text, "%" PRId64 ".%03" PRId64, ns / 1000, ns % 1000);
    }
};

std::string system_error(const std::string& path, const char* verb) {
    return "cannot " + std::string(verb) + " the timeline file " + path + ": " +
           std::strerror(errno);
}

}  // namespace

Result<std::unique_ptr<TraceRecorder>> TraceRecorder::open(const std::string& path) {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        return fail(ErrorCode::kIo, system_error(path, "create"),
                    "name a file in a directory that you may write to");
    struct stat about{};
    if (::fstat(fd, &about) != 0 || !S_ISREG(about.st_mode)) {
        ::close(fd);
        return fail(ErrorCode::kUnsupported, "the timeline file " + path + " is not a regular file",
                    "name a file; pipes and devices can't be kept valid while recording");
    }
    std::unique_ptr<TraceRecorder> recorder(new TraceRecorder(fd, path));
    recorder->flush();
    if (!recorder->status_)
        return std::unexpected(recorder->close().error());
    return recorder;
}

TraceRecorder::TraceRecorder(int fd, std::string path)
    : fd_(fd), path_(std::move(path)), buffer_(kHead) {
    // The first event has no comma in front of it, so it is written here, once and for all.
    buffer_ += R"({"ph":"M","pid":1,"name":"process_name","args":{"name":"requests"}})";
    add(R"({"ph":"M","pid":%d,"name":"process_name","args":{"name":"compute"}})", kCompute);
    add(R"({"ph":"M","pid":%d,"tid":0,"name":"thread_name","args":{"name":"steps"}})", kCompute);
    add(R"({"ph":"M","pid":%d,"name":"process_name","args":{"name":"link"}})", kLink);
}

TraceRecorder::~TraceRecorder() {
    (void)close();  // who wants to know calls it first
}

void TraceRecorder::read(const Read& read) {
    for (; tickets_named_ <= read.ticket.value; tickets_named_++)
        add(R"({"ph":"M","pid":%d,"tid":%u,"name":"thread_name","args":{"name":"ticket %u"}})",
            kLink, tickets_named_, tickets_named_);
    add(R"({"ph":"X","pid":%d,"tid":%u,"ts":%s,"dur":%s,"name":"expert %u","args":)"
        R"({"expert":%u,"layer":%u,"slot":%u,"bytes":%)" PRIu64 R"(,"ok":%s}})",
        kLink, read.ticket.value, Micros(read.started.ns).text,
        Micros((read.finished - read.started).ns).text, read.expert.value, read.expert.value,
        read.layer.value, read.slot.value, read.bytes, read.ok ? "true" : "false");
}

void TraceRecorder::step(const Step& step) {
    add(R"({"ph":"X","pid":%d,"tid":0,"ts":%s,"dur":%s,"name":"stage %u","args":)"
        R"({"stage":%u,"sequences":%u,"experts":%u,"uses":%u}})",
        kCompute, Micros(step.started.ns).text, Micros((step.finished - step.started).ns).text,
        step.stage, step.stage, step.sequences, step.experts, step.uses);
}

void TraceRecorder::request_arrived(RequestId request, uint32_t prompt_tokens, Instant at) {
    add(R"({"ph":"M","pid":%d,"tid":%)" PRIu64
        R"(,"name":"thread_name","args":{"name":"request %)" PRIu64 R"("}})",
        kRequests, request.value, request.value);
    add(R"({"ph":"B","pid":%d,"tid":%)" PRIu64
        R"(,"ts":%s,"name":"request","args":{"prompt_tokens":%u}})",
        kRequests, request.value, Micros(at.ns).text, prompt_tokens);
}

void TraceRecorder::request_begin(RequestId request, std::string_view name, Instant at) {
    add(R"({"ph":"B","pid":%d,"tid":%)" PRIu64 R"(,"ts":%s,"name":"%.*s"})", kRequests,
        request.value, Micros(at.ns).text, static_cast<int>(name.size()), name.data());
}

void TraceRecorder::request_end(RequestId request, Instant at) {
    add(R"({"ph":"E","pid":%d,"tid":%)" PRIu64 R"(,"ts":%s})", kRequests, request.value,
        Micros(at.ns).text);
}

void TraceRecorder::request_span(RequestId request, std::string_view name, Instant from,
                                 Instant to) {
    add(R"({"ph":"X","pid":%d,"tid":%)" PRIu64 R"(,"ts":%s,"dur":%s,"name":"%.*s"})", kRequests,
        request.value, Micros(from.ns).text, Micros((to - from).ns).text,
        static_cast<int>(name.size()), name.data());
}

void TraceRecorder::add(const char* format, ...) {
    if (!status_)
        return;
    char text[512];
    va_list args;
    va_start(args, format);
    const int length = std::vsnprintf(text, sizeof text, format, args);
    va_end(args);
    buffer_ += ",\n";
    buffer_.append(text, std::min<size_t>(static_cast<size_t>(length), sizeof text - 1));
    if (buffer_.size() >= kBufferBytes)
        flush();
}

void TraceRecorder::flush() {
    if (!status_)
        return;
    const uint64_t events = buffer_.size();
    buffer_ += kTail;
    uint64_t done = 0;
    while (done < buffer_.size()) {
        const ssize_t written = ::pwrite(fd_, buffer_.data() + done, buffer_.size() - done,
                                         static_cast<off_t>(offset_ + done));
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0) {
            status_ = fail(ErrorCode::kIo, system_error(path_, "write"),
                           "free some space on its disk; the timeline ends here");
            break;
        }
        done += static_cast<uint64_t>(written);
    }
    offset_ += events;
    buffer_.clear();
}

Status TraceRecorder::close() {
    if (fd_ < 0)
        return {};
    flush();
    if (::close(std::exchange(fd_, -1)) != 0 && status_)
        status_ = fail(ErrorCode::kIo, system_error(path_, "write"), {});
    Status first = std::move(status_);
    status_ = fail(ErrorCode::kIo, "the timeline is closed", {});
    return first;
}

}  // namespace bevy
