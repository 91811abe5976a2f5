#include "sim/step_cost_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

#include "base/assert.h"

namespace bevy {

namespace {

// launch, pair, layer, head, byte, link busy.
constexpr size_t kCauses = 6;
constexpr size_t kByte = 4;
constexpr size_t kLink = 5;
constexpr double kContentionMax = 0.95;
constexpr size_t kIdleMin = 50;  // steps with an idle link are enough to tell costs apart

using Vector = std::array<double, kCauses>;

Vector causes_of(const StepSample& sample) {
    const double rows = sample.work.advances ? sample.work.rows : 0;
    return {1,
            static_cast<double>(sample.work.pairs),
            sample.head ? 0 : rows,
            sample.head ? rows : 0,
            static_cast<double>(sample.bytes),
            static_cast<double>(sample.link_busy.ns)};
}

// The sums that least squares needs, in units in which every cause is about as large as the others.
struct NormalEquations {
    Vector scale{};
    std::array<Vector, kCauses> matrix{};
    Vector right{};
    double square = 0;  // of what is explained
};

// `given` is what is not to be explained any more.
NormalEquations normal_equations(std::span<const StepSample> samples, const Vector& given) {
    NormalEquations sums;
    for (const StepSample& sample : samples) {
        const Vector causes = causes_of(sample);
        for (size_t i = 0; i < kCauses; i++)
            sums.scale[i] = std::max(sums.scale[i], causes[i]);
    }
    for (double& scale : sums.scale)
        scale = scale > 0 ? scale : 1;
    for (const StepSample& sample : samples) {
        Vector causes = causes_of(sample);
        double left = static_cast<double>(sample.took.ns);
        for (size_t i = 0; i < kCauses; i++) {
            left -= given[i] * causes[i];
            causes[i] /= sums.scale[i];
        }
        for (size_t i = 0; i < kCauses; i++) {
            for (size_t j = 0; j < kCauses; j++)
                sums.matrix[i][j] += causes[i] * causes[j];
            sums.right[i] += causes[i] * left;
        }
        sums.square += left * left;
    }
    return sums;
}

// The least squares with the causes in `chosen` alone, by Cholesky's method; nothing where they
// can't be told apart.
std::optional<Vector> solve(const NormalEquations& sums, uint32_t chosen) {
    std::array<size_t, kCauses> index{};
    size_t count = 0;
    for (size_t i = 0; i < kCauses; i++) {
        if (chosen >> i & 1)
            index[count++] = i;
    }
    std::array<Vector, kCauses> lower{};
    Vector half{};
    for (size_t i = 0; i < count; i++) {
        for (size_t j = 0; j <= i; j++) {
            double sum = sums.matrix[index[i]][index[j]];
            for (size_t k = 0; k < j; k++)
                sum -= lower[i][k] * lower[j][k];
            if (i == j && sum <= 1e-9 * sums.matrix[index[i]][index[i]])
                return std::nullopt;
            lower[i][j] = i == j ? std::sqrt(sum) : sum / lower[j][j];
        }
        double sum = sums.right[index[i]];
        for (size_t k = 0; k < i; k++)
            sum -= lower[i][k] * half[k];
        half[i] = sum / lower[i][i];
    }
    Vector solution{};
    for (size_t i = count; i-- > 0;) {
        double sum = half[i];
        for (size_t k = i + 1; k < count; k++)
            sum -= lower[k][i] * solution[index[k]];
        solution[index[i]] = sum / lower[i][i];
    }
    return solution;
}

double residual(const NormalEquations& sums, const Vector& solution) {
    double rest = sums.square;
    for (size_t i = 0; i < kCauses; i++) {
        rest -= 2 * solution[i] * sums.right[i];
        for (size_t j = 0; j < kCauses; j++)
            rest += solution[i] * solution[j] * sums.matrix[i][j];
    }
    return rest;
}

// With so few causes, all sets of those that cost something can be tried.
Vector least_squares_from_zero_up(const NormalEquations& sums) {
    Vector best{};
    double best_rest = sums.square;
    for (uint32_t chosen = 1; chosen < 1u << kCauses; chosen++) {
        const std::optional<Vector> solution = solve(sums, chosen);
        if (!solution || std::ranges::any_of(*solution, [](double cost) { return cost < 0; }))
            continue;
        const double rest = residual(sums, *solution);
        if (rest < best_rest) {
            best = *solution;
            best_rest = rest;
        }
    }
    for (size_t i = 0; i < kCauses; i++)
        best[i] /= sums.scale[i];
    return best;
}

// The part of a busy link's time by which steps are longer than their other costs say.
double contention_beside(std::span<const StepSample> samples, const Vector& known) {
    double longer = 0;
    double busy = 0;
    for (const StepSample& sample : samples) {
        const Vector causes = causes_of(sample);
        double left = static_cast<double>(sample.took.ns);
        for (size_t i = 0; i < kLink; i++)
            left -= known[i] * causes[i];
        longer += sample.link_busy.ns > 0 ? left : 0;
        busy += causes[kLink];
    }
    return busy > 0 ? std::max(longer / busy, 0.0) : 0;
}

}  // namespace

double FittedCosts::time_ns(const StepSample& sample) const {
    const Vector costs = {launch_ns, pair_ns, layer_ns, head_ns, byte_ns, contention};
    const Vector causes = causes_of(sample);
    double sum = 0;
    for (size_t i = 0; i < kCauses; i++)
        sum += costs[i] * causes[i];
    return sum;
}

FittedCosts fit_step_costs(std::span<const StepSample> samples, double byte_ns_min) {
    BEVY_ASSERT(!samples.empty());
    // Bytes cost at least that, so only what they cost beyond is to be found.
    Vector given{};
    given[kByte] = byte_ns_min;
    std::vector<StepSample> idle;
    for (const StepSample& sample : samples) {
        if (sample.link_busy.ns == 0)
            idle.push_back(sample);
    }
    Vector found = least_squares_from_zero_up(normal_equations(
        idle.size() >= kIdleMin ? std::span<const StepSample>(idle) : samples, given));
    if (idle.size() >= kIdleMin) {
        Vector known = found;
        known[kByte] += byte_ns_min;
        found[kLink] = contention_beside(samples, known);
    }
    FittedCosts costs{.launch_ns = found[0],
                      .pair_ns = found[1],
                      .layer_ns = found[2],
                      .head_ns = found[3],
                      .byte_ns = found[kByte] + byte_ns_min,
                      .contention = std::min(found[kLink], kContentionMax)};
    double square = 0;
    double sum = 0;
    for (const StepSample& sample : samples) {
        const double real = static_cast<double>(sample.took.ns);
        square += std::pow(costs.time_ns(sample) - real, 2);
        sum += real;
    }
    const double count = static_cast<double>(samples.size());
    costs.error = sum > 0 ? std::sqrt(square / count) / (sum / count) : 0;
    return costs;
}

}  // namespace bevy
