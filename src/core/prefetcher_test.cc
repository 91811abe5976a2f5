// The prefetcher alone, without a core around it, and what its invariants notice. How it works with
// the core: prefetch_test.cc.
#include "core/prefetcher.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "core/core_test_driver.h"
#include "core/predictor/registry.h"

namespace bevy {
namespace {

struct Alone {
    Alone() : config(small_config()), state(config), prefetcher(config, predictor(), 100) {
        state.sequences[0].phase = Phase::kExperts;
    }
    std::unique_ptr<Predictor> predictor() const {
        return make_next_gate_predictor({.layers = 2, .experts_per_layer = 4, .experts_used = 2});
    }
    void reveal(std::vector<ExpertIndex> guesses) {
        std::vector<ExpertDemand> route = experts({0, 1});
        prefetcher.on_reveal(state, {.seq = SeqIndex(0), .used = route, .guesses = guesses}, stats);
        prefetcher.check_invariants(state);
    }
    CoreConfig config;
    CoreState state;
    Prefetcher prefetcher;
    CoreStats stats;
};

TEST(Prefetcher, TriesAnUnreadableExpertAgainAfterADemandReadHasSucceeded) {
    Alone alone;
    alone.reveal(indices({3}));
    alone.prefetcher.on_read_done(ExpertId(7), true, true);  // a cancelled read says nothing
    alone.prefetcher.on_read_done(ExpertId(7), false, false);
    EXPECT_EQ(alone.prefetcher.next(alone.state), std::nullopt);
    alone.prefetcher.on_read_done(ExpertId(7), false, true);
    EXPECT_EQ(alone.prefetcher.next(alone.state), std::nullopt);
    alone.prefetcher.on_read_done(ExpertId(7), true, false);
    EXPECT_EQ(alone.prefetcher.next(alone.state), ExpertId(7));
    EXPECT_TRUE(alone.prefetcher.is_prefetched(ExpertId(7)));
}

// Canaries: what the invariants must notice.
TEST(PrefetcherDeathTest, AProtectionThatWasNotDroppedIsCaught) {
    Alone alone;
    alone.reveal(indices({2, 3}));
    alone.state.cache.protect(ExpertId(4));
    EXPECT_DEATH(alone.prefetcher.check_invariants(alone.state), "protections");
}

TEST(PrefetcherDeathTest, AProtectionThatWasDroppedTooEarlyIsCaught) {
    Alone alone;
    alone.reveal(indices({2, 3}));
    alone.state.cache.unprotect(ExpertId(6));
    EXPECT_DEATH(alone.prefetcher.check_invariants(alone.state), "protections");
}

TEST(PrefetcherDeathTest, GuessesOfARequestThatIsGoneAreCaught) {
    Alone alone;
    alone.reveal(indices({2, 3}));
    alone.state.sequences[0].phase = Phase::kFree;  // without on_end()
    EXPECT_DEATH(alone.prefetcher.check_invariants(alone.state), "kFree");
}

TEST(PrefetcherDeathTest, AGuessThatWasNeverReadAndCountsAsReadIsCaught) {
    Alone alone;
    alone.reveal(indices({2, 3}));
    ASSERT_EQ(alone.prefetcher.next(alone.state), ExpertId(6));
    EXPECT_DEATH(alone.prefetcher.check_invariants(alone.state), "kAbsent");
}

}  // namespace
}  // namespace bevy
