// The table of eviction policies: names for --eviction, help and errors.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "core/eviction/eviction.h"

namespace bevy {

struct EvictionRow {
    std::string_view name;
    std::string_view summary;  // for --help
    std::unique_ptr<EvictionPolicy> (*make)(const EvictionShape& shape);
};

std::span<const EvictionRow> eviction_policies();

std::unique_ptr<EvictionPolicy> make_two_rate_eviction(const EvictionShape& shape);
std::unique_ptr<EvictionPolicy> make_reuse_eviction(const EvictionShape& shape);
std::unique_ptr<EvictionPolicy> make_lfu_eviction(const EvictionShape& shape);
std::unique_ptr<EvictionPolicy> make_lfru_eviction(const EvictionShape& shape);
std::unique_ptr<EvictionPolicy> make_lru_layer_eviction(const EvictionShape& shape);
std::unique_ptr<EvictionPolicy> make_lru_eviction(const EvictionShape& shape);
std::unique_ptr<EvictionPolicy> make_s3_fifo_eviction(const EvictionShape& shape);
std::unique_ptr<EvictionPolicy> make_sieve_eviction(const EvictionShape& shape);
std::unique_ptr<EvictionPolicy> make_fifo_eviction(const EvictionShape& shape);

}  // namespace bevy
