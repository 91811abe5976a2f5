// The expert cache: which expert lies in which slot, and who still needs it. Ids only, never bytes.
//
// The rule: a slot is in exactly one state.
//
//     free ---begin_read---> loading ---read_arrived---> evictable <---demand/release---> pinned
//       ^                       |                            |
//       +------read_failed------+          (begin_read of another expert evicts)
//
// A demand is one (request, expert) pair that a router has revealed and that has not been computed
// yet. A resident expert with demands is pinned and can't be evicted; without, it is evictable. An
// expert that is being read collects demands as well: they join the read. A failed read leaves the
// slot free; errors are never cached.
//
// A protection is the weaker claim of a guess: the expert keeps its slot while any other can go,
// but never against a demand.
//
// What it does not do: choose what to read next (fetch_planner.h) or what to compute (policy/).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "core/eviction/eviction.h"

namespace bevy {

enum class Residency : uint8_t { kAbsent, kLoading, kResident };

class ExpertCache {
public:
    ExpertCache(uint32_t experts, uint32_t slots);

    Residency residency(ExpertId expert) const { return experts_[expert.value].residency; }
    // REQUIRES: loading or resident.
    SlotIndex slot(ExpertId expert) const;
    uint32_t demands(ExpertId expert) const { return experts_[expert.value].demands; }

    void demand(ExpertId expert);
    // REQUIRES: a demand() without its release().
    void release(ExpertId expert);

    uint32_t protections(ExpertId expert) const { return experts_[expert.value].protections; }

    void protect(ExpertId expert);
    // REQUIRES: a protect() without its unprotect().
    void unprotect(ExpertId expert);

    // True when begin_read() would find a slot: one is free, or an evictable expert can go.
    bool has_room() const { return free_slots_ > 0 || evictable_ > 0; }
    // The same for a guess, which takes no slot from a protected expert.
    bool has_room_for_guess() const { return free_slots_ > 0 || unprotected_ > 0; }

    // Gives `expert` a slot and marks it as loading. If no slot is free, `policy` names the expert
    // to evict among the evictable ones, protected ones only if there is no other; it is stored in
    // `evicted`. REQUIRES: absent, has_room().
    SlotIndex begin_read(ExpertId expert, EvictionPolicy& policy, std::optional<ExpertId>& evicted);
    // REQUIRES: loading.
    void read_arrived(ExpertId expert);
    void read_failed(ExpertId expert);

    uint32_t slots() const { return static_cast<uint32_t>(slots_.size()); }
    uint32_t slots_free() const { return free_slots_; }
    uint32_t slots_loading() const { return loading_; }
    uint32_t slots_pinned() const { return resident_ - evictable(); }
    uint32_t evictable() const { return evictable_; }
    // Resident, without demands; with `protected_too`, whoever protects it.
    bool is_evictable(ExpertId expert, bool protected_too) const {
        const Expert& e = experts_[expert.value];
        return e.residency == Residency::kResident && e.demands == 0 &&
               (protected_too || e.protections == 0);
    }

    void check_invariants() const;

private:
    struct Expert {
        Residency residency = Residency::kAbsent;
        uint32_t demands = 0;
        uint32_t protections = 0;
        uint32_t slot = 0;  // valid unless absent
    };
    // Books that `expert` has become evictable, or is no longer, under its present protections.
    void count_evictable(const Expert& expert, bool now);
    uint32_t free_slot() const;
    ExpertId victim(EvictionPolicy& policy);

    std::vector<Expert> experts_;
    std::vector<std::optional<ExpertId>> slots_;  // empty: free
    uint32_t free_slots_;
    uint32_t loading_ = 0;
    uint32_t resident_ = 0;
    uint32_t evictable_ = 0;
    uint32_t unprotected_ = 0;          // of the evictable ones
    std::vector<ExpertId> candidates_;  // reused by victim()
};

}  // namespace bevy
