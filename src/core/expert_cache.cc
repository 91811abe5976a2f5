#include "core/expert_cache.h"

#include "base/assert.h"

namespace bevy {

ExpertCache::ExpertCache(uint32_t experts, uint32_t slots)
    : experts_(experts), slots_(slots), free_slots_(slots) {
    BEVY_ASSERT(slots > 0);
}

SlotIndex ExpertCache::slot(ExpertId expert) const {
    BEVY_ASSERT(residency(expert) != Residency::kAbsent);
    return SlotIndex(experts_[expert.value].slot);
}

void ExpertCache::demand(ExpertId expert) {
    Expert& e = experts_[expert.value];
    if (e.demands++ == 0 && e.residency == Residency::kResident)
        evictable_--;
}

void ExpertCache::release(ExpertId expert) {
    Expert& e = experts_[expert.value];
    BEVY_ASSERT(e.demands > 0);
    if (--e.demands == 0 && e.residency == Residency::kResident)
        evictable_++;
}

SlotIndex ExpertCache::begin_read(ExpertId expert, std::span<const uint64_t> scores,
                                  std::optional<ExpertId>& evicted) {
    BEVY_ASSERT(residency(expert) == Residency::kAbsent);
    BEVY_ASSERT(has_room());
    evicted.reset();
    // One pass finds a free slot or the smallest score. Linear in the slots, a few microseconds,
    // once per read of megabytes: an ordered structure would cost more, since a visit changes every
    // score of a layer.
    std::optional<uint32_t> chosen;
    uint64_t smallest = 0;
    for (uint32_t i = 0; i < slots_.size(); i++) {
        if (!slots_[i]) {
            chosen = i;
            break;
        }
        if (free_slots_ > 0)
            continue;  // a free one comes later
        const Expert& e = experts_[slots_[i]->value];
        if (e.residency != Residency::kResident || e.demands > 0)
            continue;
        uint64_t score = scores[slots_[i]->value];
        if (!chosen || score < smallest) {
            chosen = i;
            smallest = score;
        }
    }
    BEVY_ASSERT(chosen.has_value());
    if (slots_[*chosen]) {
        evicted = slots_[*chosen];
        experts_[evicted->value].residency = Residency::kAbsent;
        resident_--;
        evictable_--;
    } else {
        free_slots_--;
    }
    slots_[*chosen] = expert;
    Expert& e = experts_[expert.value];
    e.residency = Residency::kLoading;
    e.slot = *chosen;
    loading_++;
    return SlotIndex(*chosen);
}

void ExpertCache::read_arrived(ExpertId expert) {
    Expert& e = experts_[expert.value];
    BEVY_ASSERT(e.residency == Residency::kLoading);
    e.residency = Residency::kResident;
    loading_--;
    resident_++;
    if (e.demands == 0)
        evictable_++;
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
        unpinned += e.residency == Residency::kResident && e.demands == 0;
    }
    BEVY_ASSERT(free == free_slots_);
    BEVY_ASSERT(loading == loading_);
    BEVY_ASSERT(resident == resident_);
    BEVY_ASSERT(unpinned == evictable_);
    uint32_t placed = 0;
    for (const Expert& e : experts_)
        placed += e.residency != Residency::kAbsent;
    BEVY_ASSERT(placed == loading + resident);
}

}  // namespace bevy
