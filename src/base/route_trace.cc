#include "base/route_trace.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bitset>
#include <cerrno>
#include <cstring>
#include <format>
#include <optional>
#include <string_view>

namespace bevy {

namespace {

constexpr std::string_view kMagic = "RTR1";
constexpr const char* kWhatItIs = "an .rtrace file holds recorded routes; is this another file?";
constexpr const char* kIncomplete = "was the file copied or written completely?";

class FileDescriptor {
public:
    explicit FileDescriptor(int fd) : fd_(fd) {}
    ~FileDescriptor() { close(); }
    FileDescriptor(const FileDescriptor&) = delete;
    FileDescriptor& operator=(const FileDescriptor&) = delete;

    int get() const { return fd_; }
    // False: what was written may be lost.
    bool close() {
        const int fd = fd_;
        fd_ = -1;
        return fd < 0 || ::close(fd) == 0;
    }

private:
    int fd_;
};

std::unexpected<Error> system_error(const std::string& path, const char* verb) {
    const int code = errno;
    return fail(code == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
                std::format("cannot {} {}: {}", verb, path, std::strerror(code)));
}

std::unexpected<Error> corrupt(const std::string& name, const std::string& what,
                               const char* hint = "") {
    return fail(ErrorCode::kCorruptFile, name + ": " + what, hint);
}

// Takes numbers from the front of a file.
struct Reader {
    std::span<const std::byte> rest;

    std::optional<uint32_t> number() {
        uint32_t value = 0;
        if (rest.size() < sizeof value)
            return std::nullopt;
        std::memcpy(&value, rest.data(), sizeof value);
        rest = rest.subspan(sizeof value);
        return value;
    }
};

Status check_sizes(uint64_t requests, const RouteTrace& trace, const std::string& name) {
    if (requests == 0 || trace.layers == 0 || trace.experts == 0 || trace.top_k == 0)
        return corrupt(name, std::format("{} requests, {} layers, {} experts and {} experts per "
                                         "token: none of them may be zero",
                                         requests, trace.layers, trace.experts, trace.top_k));
    if (trace.experts > RouteTrace::kExpertsMax)
        return fail(ErrorCode::kUnsupported,
                    std::format("{}: {} experts per layer, but a route holds at most {}", name,
                                trace.experts, RouteTrace::kExpertsMax));
    if (trace.top_k > trace.experts)
        return corrupt(name, std::format("{} experts per token are more than the {} of a layer",
                                         trace.top_k, trace.experts));
    return {};
}

// REQUIRES: sizes are checked, and the request has as many bytes as its tokens need.
Status check_routes(const RouteTrace& trace, uint32_t request, const std::string& name) {
    for (uint32_t token = 0; token < trace.requests[request].tokens; token++) {
        for (uint32_t layer = 0; layer < trace.layers; layer++) {
            std::bitset<RouteTrace::kExpertsMax> seen;
            for (const uint8_t expert : trace.route(request, token, layer)) {
                if (expert < trace.experts && !seen[expert]) {
                    seen.set(expert);
                    continue;
                }
                const char* what = expert < trace.experts ? "is there twice" : "does not exist";
                return corrupt(name,
                               std::format("request {}, token {}, layer {}: expert {} {} "
                                           "(experts are 0 .. {})",
                                           request, token, layer, expert, what, trace.experts - 1));
            }
        }
    }
    return {};
}

}  // namespace

Result<RouteTrace> parse_route_trace(std::span<const std::byte> bytes, const std::string& name) {
    if (bytes.size() < kMagic.size() ||
        std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0)
        return corrupt(name, "does not begin with \"RTR1\"", kWhatItIs);
    Reader reader{bytes.subspan(kMagic.size())};
    std::array<uint32_t, 4> head{};
    for (uint32_t& number : head) {
        const std::optional<uint32_t> value = reader.number();
        if (!value)
            return corrupt(name, "ends within its head", kIncomplete);
        number = *value;
    }
    RouteTrace trace{.layers = head[1], .experts = head[2], .top_k = head[3]};
    if (Status status = check_sizes(head[0], trace, name); !status)
        return std::unexpected(std::move(status.error()));
    const uint64_t bytes_per_token = uint64_t{trace.layers} * trace.top_k;
    for (uint32_t request = 0; request < head[0]; request++) {
        const std::optional<uint32_t> tokens = reader.number();
        if (!tokens || *tokens > reader.rest.size() / bytes_per_token)
            return corrupt(name, std::format("ends within request {} of {}", request, head[0]),
                           kIncomplete);
        if (*tokens == 0)
            return corrupt(name, std::format("request {} has no tokens", request));
        const auto routes = reader.rest.first(*tokens * bytes_per_token);
        reader.rest = reader.rest.subspan(routes.size());
        trace.requests.push_back({*tokens, std::vector<uint8_t>(routes.size())});
        std::memcpy(trace.requests.back().bytes.data(), routes.data(), routes.size());
        if (Status status = check_routes(trace, request, name); !status)
            return std::unexpected(std::move(status.error()));
    }
    if (!reader.rest.empty())
        return corrupt(name, std::format("{} bytes follow the last request", reader.rest.size()));
    return trace;
}

Result<RouteTrace> read_route_trace(const std::string& path) {
    FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat about{};
    if (file.get() < 0 || ::fstat(file.get(), &about) != 0)
        return system_error(path, "open");
    if (!S_ISREG(about.st_mode))
        return fail(ErrorCode::kUnsupported, path + " is not a regular file",
                    "name a file with recorded routes");
    std::vector<std::byte> bytes(static_cast<size_t>(about.st_size));
    size_t done = 0;
    while (done < bytes.size()) {
        const ssize_t count = ::read(file.get(), bytes.data() + done, bytes.size() - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return system_error(path, "read");
        if (count == 0)
            break;  // somebody cut it meanwhile: the parser says so
        done += static_cast<size_t>(count);
    }
    return parse_route_trace(std::span(bytes).first(done), path);
}

Status check_route_trace(const RouteTrace& trace, const std::string& name) {
    if (Status status = check_sizes(trace.requests.size(), trace, name); !status)
        return status;
    for (uint32_t request = 0; request < trace.requests.size(); request++) {
        const RouteTrace::Request& r = trace.requests[request];
        if (r.tokens == 0 || r.bytes.size() != uint64_t{r.tokens} * trace.layers * trace.top_k)
            return corrupt(name, std::format("request {} has {} bytes of routes for {} tokens",
                                             request, r.bytes.size(), r.tokens));
        if (Status status = check_routes(trace, request, name); !status)
            return status;
    }
    return {};
}

Status write_route_trace(const RouteTrace& trace, const std::string& path) {
    if (Status status = check_route_trace(trace, path); !status)
        return status;
    std::string text(kMagic);
    const auto add = [&](uint32_t number) {
        text.append(reinterpret_cast<const char*>(&number), sizeof number);
    };
    add(static_cast<uint32_t>(trace.requests.size()));
    add(trace.layers);
    add(trace.experts);
    add(trace.top_k);
    for (const RouteTrace::Request& request : trace.requests) {
        add(request.tokens);
        text.append(reinterpret_cast<const char*>(request.bytes.data()), request.bytes.size());
    }
    FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (file.get() < 0)
        return system_error(path, "create");
    for (size_t done = 0; done < text.size();) {
        const ssize_t count = ::write(file.get(), text.data() + done, text.size() - done);
        if (count < 0 && errno == EINTR)
            continue;
        if (count < 0)
            return system_error(path, "write");
        done += static_cast<size_t>(count);
    }
    if (!file.close())
        return system_error(path, "write");
    return {};
}

}  // namespace bevy
