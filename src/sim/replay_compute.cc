#include "sim/replay_compute.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace bevy {

namespace {

__extension__ using Wide = __int128;

}  // namespace

ReplayCompute::ReplayCompute(const ReplayComputeOptions& options, const RouteSource& source,
                             const StepCosts& costs, SimClock& clock, SimLink& link, SimLog& log)
    : options_(options),
      source_(source),
      costs_(costs),
      clock_(clock),
      link_(link),
      log_(log),
      sequences_(options.sequences),
      coin_(options.seed) {
    BEVY_ASSERT(options.memory_contention_per_mille < 1000);
    BEVY_ASSERT(options.processor_contention_per_mille < 1000);
}

void ReplayCompute::start(ComputeStep step) {
    BEVY_ASSERT(!running_ && !result_);
    for (const PassInput& pass : step.passes)
        begin_pass(pass);
    const StepWork work = work_of(step);
    cost_ = costs_.of(work);
    started_ = clock_.now();
    link_busy_at_start_ = link_.busy(started_);
    log_.note(started_, 's', {work.stage, work.experts, work.pairs, step.advancing.size()});
    running_ = std::move(step);
    finish_or_go_on();
}

void ReplayCompute::begin_pass(const PassInput& pass) {
    Sequence& s = sequences_[pass.seq.value];
    if (pass.first_position == 0)
        s.routes = source_.request(static_cast<uint64_t>(pass.tokens.front()));
    s.first_position = pass.first_position;
    s.rows = static_cast<uint32_t>(pass.tokens.size());
    s.wants_logits = pass.wants_logits;
    BEVY_ASSERT(s.first_position + s.rows <= s.routes.tokens);
}

StepWork ReplayCompute::work_of(const ComputeStep& step) const {
    StepWork work{.stage = step.stage, .advances = !step.advancing.empty()};
    for (size_t i = 0; i < step.uses.size(); i++) {
        const ExpertUse& use = step.uses[i];
        work.experts += i == 0 || step.uses[i - 1].expert != use.expert;
        work.pairs += rows_that_chose(sequences_[use.seq.value], step.stage - 1, use.expert);
    }
    const bool head = step.stage == source_.trace().layers;
    for (const SeqIndex seq : step.advancing)
        work.rows += head ? 1 : sequences_[seq.value].rows;
    return work;
}

uint32_t ReplayCompute::rows_that_chose(const Sequence& s, uint32_t layer,
                                        ExpertIndex expert) const {
    if (s.rows == 1)
        return 1;
    uint32_t count = 0;
    for (uint32_t row = 0; row < s.rows; row++)
        count += std::ranges::contains(s.routes.route(s.first_position + row, layer),
                                       static_cast<uint8_t>(expert.value));
    return count;
}

int64_t ReplayCompute::lost_per_mille() const {
    return options_.memory_contention_per_mille * cost_.memory.ns +
           options_.processor_contention_per_mille * cost_.processor.ns;
}

// How much less a step got done than it would have without a link that was busy for so long.
Duration ReplayCompute::lost(Duration link_busy) const {
    if (lost_per_mille() == 0)
        return {};
    return {static_cast<int64_t>(Wide{link_busy.ns} * lost_per_mille() /
                                 (Wide{1000} * cost_.total().ns))};
}

// Called when the step might be done: as far as was known, the link would be idle by now. If it was
// not, the step goes on for what that has cost.
void ReplayCompute::finish_or_go_on() {
    const Instant now = clock_.now();
    const Duration left =
        cost_.total() - (now - started_ - lost(link_.busy(now) - link_busy_at_start_));
    if (left.ns > 0) {
        const Duration link_busy = std::max(link_.busy_until() - now, Duration{});
        // Either the link outlasts the step, which then runs slower all the time, or it does not.
        const Wide slow = Wide{cost_.total().ns} * 1000;
        const Wide lost_share = lost_per_mille();
        const Wide slowed = (left.ns * slow + slow - lost_share - 1) / (slow - lost_share);
        const Wide both = left.ns + lost(link_busy).ns;
        clock_.after({static_cast<int64_t>(std::min(slowed, both))}, [this] { finish_or_go_on(); });
        return;
    }
    StepResult result{.started = started_, .finished = now};
    result.results.reserve(running_->advancing.size());
    for (const SeqIndex seq : running_->advancing)
        result.results.push_back(result_of(seq, running_->stage, running_->wants_guesses));
    result_ = std::move(result);
    running_.reset();
    link_.wake();
}

std::vector<ExpertIndex> ReplayCompute::guess(SeqIndex seq, uint32_t layer) {
    std::vector<ExpertIndex> guesses;
    const uint32_t layers = source_.trace().layers;
    for (uint32_t ahead = 1; ahead <= options_.guessed_layers; ahead++) {
        const uint32_t target = layer + ahead;
        if (target >= layers && !options_.guesses_are_true)
            break;
        guess_route(future_route(seq, target / layers, LayerIndex(target % layers)),
                    target % layers, guesses);
    }
    return guesses;
}

void ReplayCompute::guess_route(std::span<const uint8_t> route, uint32_t layer,
                                std::vector<ExpertIndex>& out) {
    const uint32_t experts = source_.trace().experts;
    const size_t first = out.size();
    const auto guessed = [&](uint32_t expert) {
        return std::ranges::contains(std::span(out).subspan(first), ExpertIndex(expert));
    };
    for (const uint8_t expert : route) {
        const bool resident = options_.is_resident(ExpertId(layer * experts + expert));
        const uint32_t percent =
            resident ? options_.right_percent_resident : options_.right_percent_missing;
        if (options_.guesses_are_true || coin_.chance(percent, 100)) {
            out.push_back(ExpertIndex(expert));
            continue;
        }
        // A wrong one; a right one that is not said otherwise where all are used.
        uint32_t said = static_cast<uint32_t>(coin_.below(experts));
        for (uint32_t tries = 0; tries < experts; tries++) {
            if (!guessed(said) &&
                (!std::ranges::contains(route, said) || 2 * route.size() > experts))
                break;
            said = (said + 1) % experts;
        }
        if (!guessed(said))
            out.push_back(ExpertIndex(said));
    }
    // As many for every layer, so that they can be told apart.
    for (uint32_t e = 0; out.size() - first < route.size(); e++) {
        if (!guessed(e))
            out.push_back(ExpertIndex(e));
    }
}

SeqResult ReplayCompute::result_of(SeqIndex seq, uint32_t layer, bool wants_guesses) {
    const Sequence& s = sequences_[seq.value];
    SeqResult result{.seq = seq};
    const uint32_t layers = source_.trace().layers;
    if (layer == layers || (layer + 1 == layers && !s.wants_logits))
        return result;
    if (s.rows == 1) {
        for (const uint8_t expert : s.routes.route(s.first_position, layer))
            result.route.push_back({ExpertIndex(expert), 1});
        if (wants_guesses)
            result.guesses = guess(seq, layer);
        return result;
    }
    std::vector<uint32_t> rows(source_.trace().experts);
    for (uint32_t row = 0; row < s.rows; row++) {
        for (const uint8_t expert : s.routes.route(s.first_position + row, layer))
            rows[expert]++;
    }
    for (uint32_t expert = 0; expert < rows.size(); expert++) {
        if (rows[expert] > 0)
            result.route.push_back({ExpertIndex(expert), rows[expert]});
    }
    return result;
}

std::optional<StepResult> ReplayCompute::poll() {
    return std::exchange(result_, std::nullopt);
}

std::span<const uint8_t> ReplayCompute::future_route(SeqIndex seq, uint32_t tokens_ahead,
                                                     LayerIndex layer) const {
    const Sequence& s = sequences_[seq.value];
    if (s.rows == 0)
        return {};
    const uint64_t token = uint64_t{s.first_position} + s.rows - 1 + tokens_ahead;
    if (token >= s.routes.tokens)
        return {};
    return s.routes.route(static_cast<uint32_t>(token), layer.value);
}

}  // namespace bevy
