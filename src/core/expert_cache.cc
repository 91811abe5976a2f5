#include "core/expert_cache.h"

#include "base/assert.h"

namespace bevy {

ExpertCache::ExpertCache(uint32_t experts, uint32_t slots)
    : experts_(experts), slots_(slots), free_slots_(slots) {
    BEVY_ASSERT(slots > 0);
    candidates_.reserve(slots);
}

bool EvictionCandidates::contains(ExpertId expert) const {
    return cache_.is_evictable(expert, protected_too_);
}

SlotIndex ExpertCache::slot(ExpertId expert) const {
    BEVY_ASSERT(residency(expert) != Residency::kAbsent);
    return SlotIndex(experts_[expert.value].slot);
}

void ExpertCache::count_evictable(const Expert& expert, bool now) {
    uint32_t change = now ? 1u : ~0u;  // minus one, modulo 2^32
    evictable_ += change;
    if (expert.protections == 0)
        unprotected_ += change;
}

void ExpertCache::demand(ExpertId expert) {
    Expert& e = experts_[expert.value];
    if (e.demands++ == 0 && e.residency == Residency::kResident)
        count_evictable(e, false);
}

void ExpertCache::release(ExpertId expert) {
    Expert& e = experts_[expert.value];
    BEVY_ASSERT(e.demands > 0);
    if (--e.demands == 0 && e.residency == Residency::kResident)
        count_evictable(e, true);
}

void ExpertCache::protect(ExpertId expert) {
    Expert& e = experts_[expert.value];
    if (e.protections++ == 0 && is_evictable(expert, true))
        unprotected_--;
}

void ExpertCache::unprotect(ExpertId expert) {
    Expert& e = experts_[expert.value];
    BEVY_ASSERT(e.protections > 0);
    if (--e.protections == 0 && is_evictable(expert, true))
        unprotected_++;
}

uint32_t ExpertCache::free_slot() const {
    uint32_t i = 0;
    while (slots_[i])
        i++;
    return i;
}

ExpertId ExpertCache::victim(EvictionPolicy& policy) {
    bool protected_too = unprotected_ == 0;
    candidates_.clear();
    for (const std::optional<ExpertId>& placed : slots_) {
        if (placed && is_evictable(*placed, protected_too))
            candidates_.push_back(*placed);
    }
    ExpertId chosen = policy.choose({candidates_, *this, protected_too});
    BEVY_ASSERT(is_evictable(chosen, protected_too));
    return chosen;
}

SlotIndex ExpertCache::begin_read(ExpertId expert, EvictionPolicy& policy,
                                  std::optional<ExpertId>& evicted) {
    BEVY_ASSERT(residency(expert) == Residency::kAbsent);
    BEVY_ASSERT(has_room());
    evicted.reset();
    Expert& e = experts_[expert.value];
    if (free_slots_ > 0) {
        e.slot = free_slot();
        free_slots_--;
    } else {
        evicted = victim(policy);
        Expert& old = experts_[evicted->value];
        count_evictable(old, false);
        old.residency = Residency::kAbsent;
        resident_--;
        e.slot = old.slot;
        policy.on_evicted(*evicted);
    }
    slots_[e.slot] = expert;
    e.residency = Residency::kLoading;
    loading_++;
    return SlotIndex(e.slot);
}

void ExpertCache::read_arrived(ExpertId expert) {
    Expert& e = experts_[expert.value];
    BEVY_ASSERT(e.residency == Residency::kLoading);
    e.residency = Residency::kResident;
    loading_--;
    resident_++;
    if (e.demands == 0)
        count_evictable(e, true);
}

void ExpertCache::read_failed(ExpertId expert) {
    Expert& e = experts_[expert.value];
    BEVY_ASSERT(e.residency == Residency::kLoading);
    e.residency = Residency::kAbsent;
    loading_--;
    slots_[e.slot].reset();
    free_slots_++;
}

void ExpertCache::check_invariants() const {
    uint32_t free = 0;
    uint32_t loading = 0;
    uint32_t resident = 0;
    uint32_t unpinned = 0;
    uint32_t unprotected = 0;
    for (uint32_t i = 0; i < slots_.size(); i++) {
        if (!slots_[i]) {
            free++;
            continue;
        }
        const Expert& e = experts_[slots_[i]->value];
        BEVY_ASSERT(e.slot == i);
        BEVY_ASSERT(e.residency != Residency::kAbsent);
        loading += e.residency == Residency::kLoading;
        resident += e.residency == Residency::kResident;
        unpinned += is_evictable(*slots_[i], true);
        unprotected += is_evictable(*slots_[i], false);
    }
    BEVY_ASSERT(free == free_slots_);
    BEVY_ASSERT(loading == loading_);
    BEVY_ASSERT(resident == resident_);
    BEVY_ASSERT(unpinned == evictable_);
    BEVY_ASSERT(unprotected == unprotected_);
    uint32_t placed = 0;
    for (const Expert& e : experts_)
        placed += e.residency != Residency::kAbsent;
    BEVY_ASSERT(placed == loading + resident);
}

}  // namespace bevy
