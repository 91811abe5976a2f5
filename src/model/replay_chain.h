// The chains of a replay model: which token follows which, and which routes it has.
//
// Every chain replays one request of a trace. Its tokens stand for the steps of that request; each
// is followed by the next one, the last by the first, whatever came before. So what a greedy decode
// gives is known beforehand. It proves that every request got its own state through all layers;
// that the right experts were used is seen from recorded routes (bevy run --record-routes), because
// what experts add does not reach the head. Immutable; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/metadata.h"

namespace bevy {

struct ReplayPlace {
    uint32_t request = 0;
    uint32_t step = 0;

    friend bool operator==(ReplayPlace, ReplayPlace) = default;
};

struct ReplayChains {
    uint32_t requests = 0;
    uint32_t steps = 0;  // per request

    // One residual dimension each, from the first on.
    uint32_t codes() const { return requests * steps; }
    uint32_t code(ReplayPlace place) const { return place.request * steps + place.step; }
    ReplayPlace place(uint32_t code) const { return {code / steps, code % steps}; }
    ReplayPlace next(ReplayPlace place) const { return {place.request, (place.step + 1) % steps}; }

    uint32_t token(ReplayPlace place) const;
    // Every token has a place, so that any prompt leads into a chain; other tokens than those of
    // the chains share the places among them.
    uint32_t code_of_token(uint32_t token) const;
    std::optional<ReplayPlace> find(uint32_t token) const;  // nothing: not of a chain
    static std::string text(ReplayPlace place);             // "<3:17>"
    std::vector<std::string> texts() const;                 // in order of codes
    // The place at the start of `text`, and cuts it off; nothing when it starts otherwise.
    std::optional<ReplayPlace> take(std::string_view& text) const;

    void write(MetadataWriter& writer) const;
    // kUnsupported: not a replay model.
    static Result<ReplayChains> read(const Metadata& metadata);
};

}  // namespace bevy
