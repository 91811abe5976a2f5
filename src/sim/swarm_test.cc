// The engine and core that we ship, on virtual time, under two thousand random configurations
// (fewer with a sanitizer).
//
// One seed alone:  BEVY_SEED=17 bevy_sim_tests --gtest_filter='Swarm.*'
// More of them:    BEVY_SEEDS=10000 bevy_sim_tests --gtest_filter='Swarm.*'
#include "sim/swarm.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

namespace bevy {
namespace {

char running[2048];  // what to print when an assertion of the engine or the core ends the process

extern "C" void print_running(int) {
    (void)!write(STDERR_FILENO, running, std::string_view(running).size());
    std::signal(SIGABRT, SIG_DFL);
    std::abort();
}

std::string replay_line(uint64_t seed) {
    return "replay with: BEVY_SEED=" + std::to_string(seed) +
           " bevy_sim_tests --gtest_filter='Swarm.*'\n";
}

SwarmReport run_seed(uint64_t seed) {
    const SwarmOptions options = draw_swarm(seed);
    std::snprintf(running, sizeof running, "%s%s", replay_line(seed).c_str(),
                  options.text().c_str());
    const auto before = std::signal(SIGABRT, print_running);
    SwarmReport report = run_swarm(options);
    std::signal(SIGABRT, before);
    if (!report.violations.empty()) {
        std::string text = replay_line(seed) + options.text();
        for (const std::string& violation : report.violations)
            text += "  broken: " + violation + '\n';
        ADD_FAILURE() << text;
    }
    return report;
}

#ifdef BEVY_SANITIZED
constexpr uint64_t kSeeds = 200;
#else
constexpr uint64_t kSeeds = 2000;
#endif

uint64_t number_from_environment(const char* name, uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

TEST(Swarm, EveryRuleHoldsUnderEverySeed) {
    uint64_t first = 1;
    uint64_t last = number_from_environment("BEVY_SEEDS", kSeeds);
    if (std::getenv("BEVY_SEED"))
        first = last = number_from_environment("BEVY_SEED", 1);
    EngineStats sum;
    for (uint64_t seed = first; seed <= last && !HasFailure(); seed++) {
        const EngineStats stats = run_seed(seed).stats;
        const CoreStats& core = stats.core;
        sum.tokens_reused += stats.tokens_reused;
        sum.core.requests_finished += core.requests_finished;
        sum.core.requests_cancelled += core.requests_cancelled;
        sum.core.requests_failed += core.requests_failed;
        sum.core.reads_cancelled += core.reads_cancelled;
        sum.core.expert_joins += core.expert_joins;
        sum.core.evictions += core.evictions;
        sum.core.idle_steps += core.idle_steps;
    }
    if (first == last)
        return;
    // The swarm must reach what it is there for.
    EXPECT_GT(sum.core.requests_finished, 0u);
    EXPECT_GT(sum.core.requests_cancelled, 0u);
    EXPECT_GT(sum.core.requests_failed, 0u);
    EXPECT_GT(sum.core.reads_cancelled, 0u);
    EXPECT_GT(sum.core.expert_joins, 0u);
    EXPECT_GT(sum.core.evictions, 0u);
    EXPECT_GT(sum.core.idle_steps, 0u);
    EXPECT_GT(sum.tokens_reused, 0u);
}

// Every build of every compiler must do the same: decisions, order and times. A change of the core
// or of the simulation changes the number; then it is the one that the message shows.
TEST(Swarm, AllCompilersAgree) {
    constexpr uint64_t kExpected = 0x345e2e6eb03ce958;
    uint64_t all = 0;
    for (uint64_t seed = 1; seed <= 50; seed++)
        all = sim_mix(all, run_seed(seed).hash);
    EXPECT_EQ(all, kExpected) << std::hex << "0x" << all;
}

TEST(Swarm, TheSameSeedGivesTheSameRun) {
    std::set<uint64_t> hashes;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        const SwarmReport one = run_seed(seed);
        const SwarmReport two = run_seed(seed);
        EXPECT_EQ(one.hash, two.hash) << "seed " << seed;
        EXPECT_EQ(one.replies, two.replies) << "seed " << seed;
        EXPECT_EQ(one.turns, two.turns) << "seed " << seed;
        hashes.insert(one.hash);
    }
    EXPECT_EQ(hashes.size(), 20u);
}

}  // namespace
}  // namespace bevy
