#include "engine/route_recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/assert.h"

namespace bevy {

Result<std::unique_ptr<RouteRecorder>> RouteRecorder::open(const std::string& path,
                                                           const Shape& shape) {
    if (shape.experts > RouteTrace::kExpertsMax)
        return fail(ErrorCode::kUnsupported,
                    "routes of " + std::to_string(shape.experts) +
                        " experts per layer can't be recorded: a route file holds at most " +
                        std::to_string(RouteTrace::kExpertsMax),
                    "leave out --record-routes");
    // Found out now, not after hours of generating.
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return fail(ErrorCode::kIo,
                    "cannot write the route file " + path + ": " + std::strerror(errno),
                    "name a file in a directory that you may write to");
    ::close(fd);
    return std::unique_ptr<RouteRecorder>(new RouteRecorder(path, shape));
}

RouteRecorder::RouteRecorder(std::string path, const Shape& shape)
    : path_(std::move(path)),
      trace_{.layers = shape.layers, .experts = shape.experts, .top_k = shape.top_k} {}

void RouteRecorder::route(RequestId request, LayerIndex layer,
                          std::span<const RoutedExpert> chosen) {
    std::vector<uint8_t>& bytes = running_[request];
    BEVY_ASSERT(chosen.size() == trace_.top_k);
    BEVY_ASSERT(bytes.size() % bytes_per_token() == size_t{layer.value} * trace_.top_k);
    for (const RoutedExpert& routed : chosen)
        bytes.push_back(static_cast<uint8_t>(routed.expert.value));
}

void RouteRecorder::finished(RequestId request) {
    auto found = running_.find(request);
    if (found == running_.end())
        return;
    std::vector<uint8_t> bytes = std::move(found->second);
    running_.erase(found);
    const size_t tokens = bytes.size() / bytes_per_token();
    bytes.resize(tokens * bytes_per_token());  // its last token may have been under way
    if (tokens > 0)
        trace_.requests.push_back({static_cast<uint32_t>(tokens), std::move(bytes)});
}

Status RouteRecorder::close() {
    if (trace_.requests.empty())
        return fail(ErrorCode::kNotFound,
                    "no routes for " + path_ + ": no request computed a token that it generated",
                    "generate at least two tokens per request");
    return write_route_trace(trace_, path_);
}

}  // namespace bevy
