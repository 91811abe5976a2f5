// Collects which experts the routers chose for generated tokens, and writes them as an .rtrace file
// (base/route_trace.h) at the end: for replays, simulations and cache studies.
//
// A request counts once it has ended, however it ended, with the tokens that went through all
// layers. The last token of a reply is sampled but never computed, so a reply of n tokens has n - 1
// routes; replies of one token have none and leave no trace. Everything is kept in memory until
// close(): layers * top_k bytes per token.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "base/route_trace.h"
#include "compute/compute.h"

namespace bevy {

// One thread at a time.
class RouteRecorder {
public:
    struct Shape {
        uint32_t layers = 0;  // with routed experts
        uint32_t experts = 0;
        uint32_t top_k = 0;
    };
    // Errors: kUnsupported (more experts than the file format holds), kIo (the file can't be
    // written). An existing file is left alone until close().
    static Result<std::unique_ptr<RouteRecorder>> open(const std::string& path, const Shape& shape);

    // What the router of `layer` chose for a generated token of `request`, in router order. The
    // layers of a token come one after the other.
    void route(RequestId request, LayerIndex layer, std::span<const RoutedExpert> chosen);
    // The request has ended; no route of it follows. Any request may be named.
    void finished(RequestId request);

    // Writes the file. Errors: kIo; kNotFound when there is nothing to write.
    Status close();

private:
    RouteRecorder(std::string path, const Shape& shape);
    size_t bytes_per_token() const { return size_t{trace_.layers} * trace_.top_k; }

    std::string path_;
    std::map<RequestId, std::vector<uint8_t>> running_;
    RouteTrace trace_;
};

}  // namespace bevy
