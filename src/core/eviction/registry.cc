#include "core/eviction/registry.h"

#include <array>

namespace bevy {

namespace {

constexpr std::array kRows = {
    EvictionRow{"two-rate", "least decayed use frequency, fast and slow rate together",
                make_two_rate_eviction},
    EvictionRow{"reuse", "least likely to be used again soon, request by request",
                make_reuse_eviction},
    EvictionRow{"lru", "least recently used", make_lru_eviction},
    EvictionRow{"fifo", "longest resident; a yardstick", make_fifo_eviction},
};

}  // namespace

std::span<const EvictionRow> eviction_policies() {
    return kRows;
}

}  // namespace bevy
