// A processor that computes nothing: it follows recorded routes and lets virtual time pass as a
// cost model says. Lean, so that an experiment of thousands of tokens takes a moment.
//
// Its guesses of the next layers' routes are the truth, spoilt by a coin: each expert that will be
// used is guessed with a given chance, which may be smaller for experts that are not in memory
// (those are the unusual ones, and every real predictor is worse at them); in its place comes
// another one at random.
//
// The first token of a request's prompt is its number in the RouteSource; token i of the text,
// prompt or reply, has the routes of token i of that request. While the link is busy, the two
// parts of a step run slower by the hardware's contention.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/prng.h"
#include "compute/compute.h"
#include "sim/route_source.h"
#include "sim/sim_clock.h"
#include "sim/sim_link.h"
#include "sim/sim_log.h"
#include "sim/step_cost.h"

namespace bevy {

struct ReplayComputeOptions {
    uint32_t sequences = 1;
    uint32_t guessed_layers = 0;
    bool guesses_are_true = false;  // then they also reach into the next token
    uint32_t right_percent_resident = 0;
    uint32_t right_percent_missing = 0;
    uint64_t seed = 0;
    // Whether the expert is in memory or on its way there. Needed if there are guesses.
    std::function<bool(ExpertId)> is_resident;
    uint32_t memory_contention_per_mille = 0;
    uint32_t processor_contention_per_mille = 0;
};

// Everything outlives it.
class ReplayCompute final : public Compute {
public:
    ReplayCompute(const ReplayComputeOptions& options, const RouteSource& source,
                  const StepCosts& costs, SimClock& clock, SimLink& link, SimLog& log);

    void start(ComputeStep step) override;
    std::optional<StepResult> poll() override;
    void abandon(SeqIndex) override {}
    std::span<const float> logits(SeqIndex) const override { return {}; }

    // What the router will choose, for predictors and eviction policies that are told the future:
    // at `layer` for the token `tokens_ahead` behind the one that `seq` computes now, or computed
    // last. In router order. Empty where the request does not reach, or when `seq` never ran.
    std::span<const uint8_t> future_route(SeqIndex seq, uint32_t tokens_ahead,
                                          LayerIndex layer) const;

private:
    struct Sequence {
        RequestRoutes routes;
        uint32_t first_position = 0;  // of its current pass
        uint32_t rows = 0;            // of that pass; 0: it never ran
        bool wants_logits = false;
    };

    void begin_pass(const PassInput& pass);
    StepWork work_of(const ComputeStep& step) const;
    uint32_t rows_that_chose(const Sequence& s, uint32_t layer, ExpertIndex expert) const;
    void finish_or_go_on();
    Duration lost(Duration link_busy) const;
    // What of a step's cost is lost if the link is busy all the time, in thousandths of its units.
    int64_t lost_per_mille() const;
    SeqResult result_of(SeqIndex seq, uint32_t layer, bool wants_guesses);
    std::vector<ExpertIndex> guess(SeqIndex seq, uint32_t layer);
    void guess_route(std::span<const uint8_t> route, uint32_t layer, std::vector<ExpertIndex>& out);

    const ReplayComputeOptions options_;
    const RouteSource& source_;
    const StepCosts& costs_;
    SimClock& clock_;
    SimLink& link_;
    SimLog& log_;
    std::vector<Sequence> sequences_;
    std::optional<ComputeStep> running_;
    StepCost cost_;  // of the step that is running
    Instant started_;
    Duration link_busy_at_start_;
    std::optional<StepResult> result_;
    Prng coin_;
};

}  // namespace bevy
