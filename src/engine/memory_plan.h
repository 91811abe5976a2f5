// The memory plan: how a hard budget is divided at start-up. Pure arithmetic, no machine is asked.
//
// Everything that Bevy allocates for a model is a line of the plan; what is left becomes expert
// slots. A plan that can't work is refused with the smallest budget that would.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace bevy {

// How large the expert cache should be.
struct CacheSize {
    enum class Kind : uint8_t {
        kRest,     // all that the budget leaves
        kBytes,    // value: bytes
        kPercent,  // value: hundredths of a percent of all experts
    };
    Kind kind = Kind::kRest;
    uint64_t value = 0;
};

// "rest", "12GiB", "50%", "12.5%". Error: kInvalidArgument that names the text.
Result<CacheSize> parse_cache_size(std::string_view text);

struct MemoryDemand {
    uint64_t budget_bytes = 0;
    uint64_t resident_bytes = 0;         // weights outside the experts
    uint64_t kv_bytes_per_sequence = 0;  // at the full context
    uint32_t sequences = 1;
    uint32_t context_per_sequence = 0;       // tokens; only for messages
    uint64_t work_bytes = 0;                 // activations and graph buffers
    uint64_t bounce_bytes = 0;               // the link's staging buffers
    uint64_t program_bytes = kProgramBytes;  // code, vocabulary, libraries, heap
    uint64_t slot_bytes = 0;
    uint32_t expert_count = 0;  // of the whole model
    uint32_t experts_used = 0;  // per token and layer
    CacheSize cache;

    static constexpr uint64_t kProgramBytes = uint64_t{96} << 20;
};

struct MemoryPlan {
    MemoryDemand demand;
    uint64_t kv_bytes = 0;
    uint64_t slots_bytes = 0;
    uint32_t slots = 0;
    uint64_t total_bytes = 0;           // all lines
    uint64_t unused_bytes = 0;          // of the budget
    std::vector<std::string> warnings;  // one sentence each
};

// kBudget when the budget does not suffice, with the smallest one that does; kInvalidArgument for a
// demand that contradicts itself.
Result<MemoryPlan> plan_memory(const MemoryDemand& demand);

// The smallest budget for which plan_memory() has a plan with the same cache wish.
uint64_t smallest_budget(const MemoryDemand& demand);

struct MemoryRow {
    std::string name;  // "resident weights"
    uint64_t bytes = 0;
    std::string note;  // "8 sequences of 4096 tokens", may be empty
};

// The plan line by line; the last two rows are the total and what is left of the budget.
std::vector<MemoryRow> memory_rows(const MemoryPlan& plan);

}  // namespace bevy
