// The expert cache against a model of it that is too simple to be wrong, under random operations.
#include "core/expert_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "base/prng.h"
#include "core/eviction/scored.h"

namespace bevy {
namespace {

struct TableEviction final : ScoredEviction {
    explicit TableEviction(uint32_t experts) : table(experts) {}
    void on_reveal(const Reveal&) override {}
    std::span<const uint64_t> scores() const override { return table; }
    std::vector<uint64_t> table;
};

struct Model {
    struct Entry {
        Residency residency;
        uint32_t slot;
    };
    std::map<uint32_t, Entry> placed;
    std::map<uint32_t, uint32_t> demands;
    std::map<uint32_t, uint32_t> protections;

    uint32_t count(const std::map<uint32_t, uint32_t>& claims, uint32_t id) const {
        auto found = claims.find(id);
        return found == claims.end() ? 0 : found->second;
    }
    // The resident expert without a demand that scores least, the lower slot first; a protected
    // one only if there is no other.
    std::optional<uint32_t> victim(const std::vector<uint64_t>& scores) const {
        std::optional<uint32_t> found;
        auto before = [&](uint32_t a, uint32_t b) {
            return std::tuple(count(protections, a) > 0, scores[a], placed.at(a).slot) <
                   std::tuple(count(protections, b) > 0, scores[b], placed.at(b).slot);
        };
        for (const auto& [id, entry] : placed) {
            if (entry.residency != Residency::kResident || count(demands, id) > 0)
                continue;
            if (!found || before(id, *found))
                found = id;
        }
        return found;
    }
};

void begin_read(ExpertCache& cache, Model& model, TableEviction& policy, ExpertId expert) {
    bool room = model.placed.size() < cache.slots();
    std::optional<uint32_t> victim = model.victim(policy.table);
    EXPECT_EQ(cache.has_room(), room || victim);
    EXPECT_EQ(cache.has_room_for_guess(),
              room || (victim && model.count(model.protections, *victim) == 0));
    if (model.placed.contains(expert.value) || !(room || victim))
        return;
    std::optional<ExpertId> evicted;
    SlotIndex slot = cache.begin_read(expert, policy, evicted);
    if (room) {
        EXPECT_FALSE(evicted);
        for (const auto& [id, entry] : model.placed)
            EXPECT_NE(entry.slot, slot.value);
    } else {
        ASSERT_TRUE(evicted);
        EXPECT_EQ(evicted->value, *victim);
        EXPECT_EQ(model.placed.at(*victim).slot, slot.value);
        model.placed.erase(*victim);
    }
    model.placed[expert.value] = {Residency::kLoading, slot.value};
}

class ExpertCacheFuzz : public testing::TestWithParam<uint64_t> {};

TEST_P(ExpertCacheFuzz, AgreesWithASimpleModel) {
    Prng prng(GetParam());
    auto experts = static_cast<uint32_t>(prng.between(2, 30));
    auto slots = static_cast<uint32_t>(prng.between(1, experts));
    ExpertCache cache(experts, slots);
    Model model;
    TableEviction policy(experts);
    for (int i = 0; i < 2000; i++) {
        ExpertId expert(static_cast<uint32_t>(prng.below(experts)));
        uint32_t e = expert.value;
        policy.table[prng.below(experts)] = prng.below(1000);
        switch (prng.below(7)) {
            case 0:
                cache.demand(expert);
                model.demands[e]++;
                break;
            case 1:
                if (model.demands[e] > 0) {
                    cache.release(expert);
                    model.demands[e]--;
                }
                break;
            case 2:
                begin_read(cache, model, policy, expert);
                break;
            case 3:
                cache.protect(expert);
                model.protections[e]++;
                break;
            case 4:
                if (model.protections[e] > 0) {
                    cache.unprotect(expert);
                    model.protections[e]--;
                }
                break;
            case 5:
            case 6: {
                auto found = model.placed.find(e);
                if (found == model.placed.end() || found->second.residency != Residency::kLoading)
                    break;
                if (prng.chance(1, 4)) {
                    cache.read_failed(expert);
                    model.placed.erase(found);
                } else {
                    cache.read_arrived(expert);
                    found->second.residency = Residency::kResident;
                }
                break;
            }
        }
        cache.check_invariants();
        EXPECT_EQ(cache.slots_free(), slots - model.placed.size());
    }
}

INSTANTIATE_TEST_SUITE_P(Seeds, ExpertCacheFuzz, testing::Range<uint64_t>(0, 20));

}  // namespace
}  // namespace bevy
