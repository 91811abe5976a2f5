// Which experts a model's routers chose, token by token: recorded once, replayed by models and
// simulations, measured by cache studies.
//
// File format .rtrace, little-endian: "RTR1", then u32 requests, layers, experts, top_k; then for
// every request u32 tokens, and tokens * layers * top_k bytes: expert numbers, token by token,
// layer by layer, in router order (heaviest weight first). Decode tokens only.
//
// Invariant of a trace that was read, and condition for writing one: no size is zero, at most 256
// experts, top_k <= experts, and every route names top_k different experts below `experts`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"

namespace bevy {

struct RouteTrace {
    struct Request {
        uint32_t tokens = 0;
        std::vector<uint8_t> bytes;  // tokens * layers * top_k
    };

    static constexpr uint32_t kExpertsMax = 256;  // an expert is one byte

    uint32_t layers = 0;   // with routed experts
    uint32_t experts = 0;  // per layer
    uint32_t top_k = 0;    // of them used by a token
    std::vector<Request> requests;

    // The experts of one token at one layer, heaviest first. REQUIRES: all three are in range.
    std::span<const uint8_t> route(uint32_t request, uint32_t token, uint32_t layer) const {
        const size_t first = (size_t{token} * layers + layer) * top_k;
        return std::span(requests[request].bytes).subspan(first, top_k);
    }
    uint64_t tokens() const {
        uint64_t sum = 0;
        for (const Request& request : requests)
            sum += request.tokens;
        return sum;
    }
};

// Errors name the file and what is wrong with it: kNotFound, kIo, kCorruptFile, kUnsupported.
Result<RouteTrace> read_route_trace(const std::string& path);
// The same from bytes; `name` is for the errors.
Result<RouteTrace> parse_route_trace(std::span<const std::byte> bytes, const std::string& name);

// Whether the trace is one that could be read again. `name` is for the error.
Status check_route_trace(const RouteTrace& trace, const std::string& name);
// Replaces the file. Errors: those of check_route_trace(), kIo.
Status write_route_trace(const RouteTrace& trace, const std::string& path);

}  // namespace bevy
