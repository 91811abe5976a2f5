#include "core/eviction/registry.h"

#include <array>

namespace bevy {

namespace {

constexpr std::array kRows = {
    EvictionRow{"reuse", "least likely to be used again soon, request by request",
                make_reuse_eviction},
    EvictionRow{"two-rate", "least decayed use frequency, fast and slow rate together",
                make_two_rate_eviction},
    EvictionRow{"lfu", "least decayed use frequency", make_lfu_eviction},
    EvictionRow{"lfru", "least decayed use frequency for its age", make_lfru_eviction},
    EvictionRow{"lru-layer", "least recently used of a layer that has more than its share",
                make_lru_layer_eviction},
    EvictionRow{"lru", "least recently used", make_lru_eviction},
    EvictionRow{"s3-fifo", "longest resident, in a small and a main queue", make_s3_fifo_eviction},
    EvictionRow{"sieve", "longest resident and not used since it was last looked at",
                make_sieve_eviction},
    EvictionRow{"fifo", "longest resident; a yardstick", make_fifo_eviction},
};

}  // namespace

std::span<const EvictionRow> eviction_policies() {
    return kRows;
}

}  // namespace bevy
