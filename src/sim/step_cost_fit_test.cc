#include "sim/step_cost_fit.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/prng.h"

namespace bevy {
namespace {

constexpr double kByteMin = 0.02;  // 50 GB/s

// Steps of all kinds, that take what `truth` says, give or take `noise_percent`.
std::vector<StepSample> samples_of(const FittedCosts& truth, uint32_t noise_percent,
                                   uint32_t link_busy_percent = 100) {
    Prng prng(7);
    std::vector<StepSample> samples;
    for (int i = 0; i < 2000; i++) {
        StepSample sample;
        sample.work.experts = static_cast<uint32_t>(prng.below(20));
        sample.work.pairs = sample.work.experts + static_cast<uint32_t>(prng.below(20));
        sample.work.advances = prng.chance(3, 4);
        sample.work.rows = sample.work.advances ? 1 + static_cast<uint32_t>(prng.below(8)) : 0;
        sample.head = sample.work.advances && prng.chance(1, 20);
        sample.bytes = sample.work.experts * uint64_t{13'000'000} +
                       (sample.work.advances ? 30'000'000 : 0) + (sample.head ? 400'000'000 : 0);
        sample.took = Duration{static_cast<int64_t>(truth.time_ns(sample))};
        if (prng.chance(link_busy_percent, 100))
            sample.link_busy =
                Duration{static_cast<int64_t>(prng.below(static_cast<uint64_t>(sample.took.ns)))};
        const double exact = truth.time_ns(sample);
        const double noise = static_cast<double>(prng.below(2 * noise_percent + 1)) - noise_percent;
        sample.took = Duration{static_cast<int64_t>(exact * (1 + noise / 100))};
        samples.push_back(sample);
    }
    return samples;
}

void expect_near(const FittedCosts& found, const FittedCosts& truth, double part) {
    // Steps take some 30 ms, so the smallest of costs is known least.
    EXPECT_NEAR(found.launch_ns, truth.launch_ns, part * 3e6);
    EXPECT_NEAR(found.pair_ns, truth.pair_ns, part * truth.pair_ns);
    EXPECT_NEAR(found.layer_ns, truth.layer_ns, part * truth.layer_ns);
    EXPECT_NEAR(found.head_ns, truth.head_ns, part * truth.head_ns);
    EXPECT_NEAR(found.byte_ns, truth.byte_ns, part * truth.byte_ns);
    EXPECT_NEAR(found.contention, truth.contention, part);
}

TEST(StepCostFit, FindsTheCostsOfStepsThatFollowTheFormula) {
    const FittedCosts truth{.launch_ns = 50e3,
                            .pair_ns = 1e6,
                            .layer_ns = 2e6,
                            .head_ns = 20e6,
                            .byte_ns = 0.05,
                            .contention = 0.2};
    const FittedCosts found = fit_step_costs(samples_of(truth, 0), kByteMin);
    expect_near(found, truth, 0.001);
    EXPECT_LT(found.error, 0.001);
    expect_near(fit_step_costs(samples_of(truth, 10), kByteMin), truth, 0.05);
    // Enough steps with an idle link to see what they cost without it.
    expect_near(fit_step_costs(samples_of(truth, 0, 60), kByteMin), truth, 0.001);
    expect_near(fit_step_costs(samples_of(truth, 10, 60), kByteMin), truth, 0.1);
}

TEST(StepCostFit, NoCostIsBelowZeroAndNoByteFasterThanTheMemory) {
    FittedCosts truth{.launch_ns = 0,
                      .pair_ns = 1e6,
                      .layer_ns = 0,
                      .head_ns = 0,
                      .byte_ns = kByteMin / 4,
                      .contention = 0};
    const FittedCosts found = fit_step_costs(samples_of(truth, 10), kByteMin);
    EXPECT_EQ(found.byte_ns, kByteMin);
    for (const double cost :
         {found.launch_ns, found.pair_ns, found.layer_ns, found.head_ns, found.contention})
        EXPECT_GE(cost, 0);
}

// One request at a time: experts and pairs are the same numbers.
TEST(StepCostFit, CausesThatAlwaysComeTogetherAreRightTogether) {
    const FittedCosts truth{.launch_ns = 50e3,
                            .pair_ns = 1e6,
                            .layer_ns = 2e6,
                            .head_ns = 0,
                            .byte_ns = 0.05,
                            .contention = 0.1};
    std::vector<StepSample> samples = samples_of(truth, 0);
    std::erase_if(samples, [](const StepSample& sample) { return sample.head; });
    for (StepSample& sample : samples) {
        sample.work.advances = true;
        sample.work.rows = 1;
        sample.work.pairs = sample.work.experts;
        sample.bytes = sample.work.experts * uint64_t{13'000'000} + 30'000'000;
        sample.took = Duration{static_cast<int64_t>(truth.time_ns(sample))};
    }
    const FittedCosts found = fit_step_costs(samples, kByteMin);
    EXPECT_LT(found.error, 0.001);
    StepSample sample = samples.front();
    sample.work.experts = sample.work.pairs = 4;
    sample.bytes = 4 * uint64_t{13'000'000} + 30'000'000;
    EXPECT_NEAR(found.time_ns(sample), truth.time_ns(sample), 1e-3 * truth.time_ns(sample));
}

}  // namespace
}  // namespace bevy
