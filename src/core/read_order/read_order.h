// In which order experts are read: given the requests that wait, names the next expert for the
// link. One file per order, one row in registry.cc.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/ids.h"
#include "core/state.h"

namespace bevy {

class ReadOrder {
public:
    virtual ~ReadOrder() = default;
    // `waiting`: indices of the sequences that wait for experts, the most lagging first. Nothing if
    // every expert that they need is resident or on its way.
    virtual std::optional<ExpertId> next(const CoreState& state,
                                         std::span<const uint32_t> waiting) = 0;
};

// The first expert of the sequence, in router order, that nobody is reading yet.
std::optional<ExpertId> first_absent(const CoreState& state, const Sequence& sequence);

}  // namespace bevy
