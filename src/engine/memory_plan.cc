#include "engine/memory_plan.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "base/units.h"

namespace bevy {

namespace {

constexpr uint64_t kWholePercent = 100 * 100;  // CacheSize::Kind::kPercent counts hundredths
// Below this, requests wait for each other's experts more than for the link.
constexpr uint64_t kComfortableSlotsPerSequence = 3;

uint64_t fixed_bytes(const MemoryDemand& d) {
    return d.program_bytes + d.resident_bytes + d.kv_bytes_per_sequence * d.sequences +
           d.work_bytes + d.bounce_bytes;
}

// The slots that the wish names, before the budget has its say; what kRest needs is the minimum.
uint64_t slots_wished(const MemoryDemand& d) {
    switch (d.cache.kind) {
        case CacheSize::Kind::kRest:
            return d.experts_used;
        case CacheSize::Kind::kBytes:
            return std::min<uint64_t>(d.cache.value / d.slot_bytes, d.expert_count);
        case CacheSize::Kind::kPercent:
            return (uint64_t{d.expert_count} * std::min(d.cache.value, kWholePercent) +
                    kWholePercent - 1) /
                   kWholePercent;
    }
    return 0;
}

std::string number(uint64_t n) {
    return std::to_string(n);
}

// Rounded up to whole MiB, so that typing the number back in works.
std::string budget_text(uint64_t bytes) {
    return number(round_up(bytes, kMiB) / kMiB) + "MiB";
}

Status check(const MemoryDemand& d) {
    if (d.slot_bytes == 0 || d.expert_count == 0 || d.experts_used == 0 || d.sequences == 0 ||
        d.experts_used > d.expert_count)
        return fail(ErrorCode::kInvalidArgument,
                    "a memory plan needs slots, experts and sequences: got " +
                        number(d.slot_bytes) + " bytes per slot, " + number(d.expert_count) +
                        " experts, " + number(d.experts_used) + " used per token, " +
                        number(d.sequences) + " sequences");
    return {};
}

std::vector<std::string> warnings(const MemoryPlan& plan) {
    std::vector<std::string> texts;
    const MemoryDemand& d = plan.demand;
    const uint64_t comfortable =
        std::min<uint64_t>(kComfortableSlotsPerSequence * d.sequences, d.expert_count);
    if (plan.slots < comfortable)
        texts.push_back("only " + number(plan.slots) + " expert slots for " + number(d.sequences) +
                        " sequences: they will mostly wait for each other's experts; use fewer "
                        "sequences, or at least " +
                        number(comfortable) + " slots (a budget of " +
                        budget_text(fixed_bytes(d) + comfortable * d.slot_bytes) + ")");
    return texts;
}

}  // namespace

Result<CacheSize> parse_cache_size(std::string_view text) {
    if (text == "rest" || text == "auto")
        return CacheSize{};
    if (text.ends_with('%')) {
        const std::string_view digits = text.substr(0, text.size() - 1);
        double percent = 0;
        auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), percent);
        if (error == std::errc{} && end == digits.data() + digits.size() && percent > 0 &&
            percent <= 100)
            return CacheSize{CacheSize::Kind::kPercent,
                             static_cast<uint64_t>(std::lround(percent * 100))};
        return fail(ErrorCode::kInvalidArgument,
                    "'" + std::string(text) + "' is not a share of the experts",
                    "write a percentage above 0 and up to 100, for example 50%");
    }
    Result<uint64_t> bytes = parse_bytes(text);
    if (!bytes)
        return fail(ErrorCode::kInvalidArgument, "'" + std::string(text) + "' is not a cache size",
                    "write a size (12GiB), a share of all experts (50%), or 'rest'");
    return CacheSize{CacheSize::Kind::kBytes, *bytes};
}

uint64_t smallest_budget(const MemoryDemand& d) {
    const uint64_t slots = std::max<uint64_t>(slots_wished(d), d.experts_used);
    return fixed_bytes(d) + slots * d.slot_bytes;
}

Result<MemoryPlan> plan_memory(const MemoryDemand& d) {
    if (Status status = check(d); !status)
        return std::unexpected(std::move(status.error()));
    const uint64_t fixed = fixed_bytes(d);
    const uint64_t wished = slots_wished(d);
    if (wished < d.experts_used)
        return fail(ErrorCode::kBudget,
                    "the expert cache asked for holds " + number(wished) +
                        " experts, but one token uses " + number(d.experts_used) +
                        " in every layer",
                    "ask for at least " + format_bytes(d.experts_used * d.slot_bytes));
    const uint64_t needed = fixed + wished * d.slot_bytes;
    if (needed > d.budget_bytes) {
        const uint64_t left = d.budget_bytes > fixed ? (d.budget_bytes - fixed) / d.slot_bytes : 0;
        std::string hint = "raise the budget to " + budget_text(needed);
        if (left >= d.experts_used)
            hint += ", or ask for an expert cache of at most " + format_bytes(left * d.slot_bytes);
        else if (d.kv_bytes_per_sequence > 0)
            hint += ", or use fewer sequences or a shorter context (" +
                    format_bytes(d.kv_bytes_per_sequence) + " per sequence)";
        return fail(ErrorCode::kBudget,
                    "a budget of " + format_bytes(d.budget_bytes) +
                        " does not suffice: " + format_bytes(fixed) +
                        " are needed besides the experts, and " + number(wished) + " experts of " +
                        format_bytes(d.slot_bytes) + " need " + format_bytes(wished * d.slot_bytes),
                    std::move(hint));
    }
    MemoryPlan plan{.demand = d};
    const uint64_t room = (d.budget_bytes - fixed) / d.slot_bytes;
    const bool rest = d.cache.kind == CacheSize::Kind::kRest;
    plan.slots = static_cast<uint32_t>(rest ? std::min<uint64_t>(room, d.expert_count) : wished);
    plan.kv_bytes = d.kv_bytes_per_sequence * d.sequences;
    plan.slots_bytes = plan.slots * d.slot_bytes;
    plan.total_bytes = fixed + plan.slots_bytes;
    plan.unused_bytes = d.budget_bytes - plan.total_bytes;
    plan.warnings = warnings(plan);
    return plan;
}

std::vector<MemoryRow> memory_rows(const MemoryPlan& plan) {
    const MemoryDemand& d = plan.demand;
    std::string context = number(d.sequences) + (d.sequences == 1 ? " sequence" : " sequences");
    if (d.context_per_sequence > 0)
        context += " of " + number(d.context_per_sequence) + " tokens";
    const double share = 100.0 * plan.slots / d.expert_count;
    char slots[96];
    std::snprintf(slots, sizeof slots, "%u of %u experts (%.1f %%), %s each", plan.slots,
                  d.expert_count, share, format_bytes(d.slot_bytes).c_str());
    return {
        {"program", d.program_bytes, "code, vocabulary, libraries"},
        {"resident weights", d.resident_bytes, "everything but the routed experts"},
        {"KV memory", plan.kv_bytes, std::move(context)},
        {"work buffers", d.work_bytes, "activations and graphs"},
        {"bounce buffers", d.bounce_bytes, "reads that can't land in their slot"},
        {"expert slots", plan.slots_bytes, slots},
        {"total", plan.total_bytes, {}},
        {"left of the budget", plan.unused_bytes, "of " + format_bytes(d.budget_bytes)},
    };
}

}  // namespace bevy
