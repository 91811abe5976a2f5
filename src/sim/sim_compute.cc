#include "sim/sim_compute.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>

namespace bevy {

SimCompute::SimCompute(SimComputeOptions options, uint64_t seed, SimClock& clock, SimMemory& memory,
                       SimLog& log, std::function<void()> wake)
    : options_(std::move(options)),
      prng_(seed),
      clock_(clock),
      memory_(memory),
      log_(log),
      wake_(std::move(wake)),
      sequences_(options_.sequences) {}

void SimCompute::start(ComputeStep step) {
    for (Sequence& s : sequences_) {
        if (std::exchange(s.abandoned, false))
            s.in_pass = false;
    }
    const Instant now = clock_.now();
    log_.note(now, 's', {step.stage, step.uses.size(), step.advancing.size()});
    if (running_ || result_) {
        wrong("a step before the last one was polled");
        return;
    }
    started_ = now;
    if (!check(step)) {
        // A real backend would compute nonsense; this one says what it thinks and fails the step,
        // so that the simulation ends.
        result_ = StepResult{.started = now,
                             .finished = now,
                             .error = Error{ErrorCode::kInvalidArgument, "impossible step", {}}};
        return;
    }
    for (const ExpertUse& use : step.uses)
        memory_.begin_use(use.slot, options_.model.id(step.stage - 1, use.expert));
    const bool fails = now < options_.faults_until && prng_.chance(options_.fail_per_mille, 1000);
    const Duration duration = cost(step);
    running_ = std::move(step);
    clock_.after(duration, [this, fails] { finish(fails); });
}

std::optional<StepResult> SimCompute::poll() {
    return std::exchange(result_, std::nullopt);
}

std::span<const float> SimCompute::logits(SeqIndex seq) const {
    const Sequence& s = sequences_[seq.value];
    if (s.in_pass || s.logits.empty())
        log_.violation("logits of sequence " + std::to_string(seq.value) + ", which has none");
    return s.logits;
}

bool SimCompute::wrong(const std::string& what) {
    log_.violation(what);
    return false;
}

bool SimCompute::check(const ComputeStep& step) {
    const std::string name = "stage " + std::to_string(step.stage) + ": ";
    if (step.uses.empty() && step.advancing.empty())
        return wrong(name + "an empty step");
    if (step.stage > options_.model.layers)
        return wrong(name + "there is no such stage");
    auto order = [](const ExpertUse& use) { return std::tuple(use.expert, use.seq); };
    if (std::ranges::adjacent_find(step.uses, std::ranges::greater_equal{}, order) !=
        step.uses.end())
        return wrong(name + "uses out of order or twice");
    if (std::ranges::adjacent_find(step.advancing, std::ranges::greater_equal{}) !=
        step.advancing.end())
        return wrong(name + "advancing sequences out of order or twice");
    if (step.passes.size() != (step.stage == 0 ? step.advancing.size() : 0))
        return wrong(name + "passes that don't match the advancing sequences");
    if (lanes_taken(step) > options_.lanes)
        return wrong(name + "more chunks under way than there are lanes");
    for (const ExpertUse& use : step.uses) {
        if (!check_use(step, use))
            return false;
    }
    for (size_t i = 0; i < step.advancing.size(); i++) {
        const SeqIndex seq = step.advancing[i];
        if (seq.value >= sequences_.size())
            return wrong(name + "no such sequence");
        if (step.stage == 0) {
            if (step.passes[i].seq != seq || !check_pass(step.passes[i]))
                return wrong(name + "an impossible pass of sequence " + std::to_string(seq.value));
            continue;
        }
        const Sequence& s = sequences_[seq.value];
        if (!s.in_pass || s.stage != step.stage)
            return wrong(name + "sequence " + std::to_string(seq.value) + " is not there");
        for (const Row& row : s.rows) {
            for (const Pair& pair : row.pairs) {
                const bool now = std::ranges::any_of(step.uses, [&](const ExpertUse& use) {
                    return use.seq == seq && use.expert == pair.expert;
                });
                if (!pair.output && !now)
                    return wrong(name + "sequence " + std::to_string(seq.value) +
                                 " advances without expert " + std::to_string(pair.expert.value));
            }
        }
    }
    return true;
}

uint32_t SimCompute::lanes_taken(const ComputeStep& step) const {
    auto is_chunk = [](const PassInput& pass) { return pass.tokens.size() > 1; };
    auto holds_lane = [](const Sequence& s) { return s.in_pass && s.rows.size() > 1; };
    return static_cast<uint32_t>(std::ranges::count_if(step.passes, is_chunk) +
                                 std::ranges::count_if(sequences_, holds_lane));
}

bool SimCompute::check_use(const ComputeStep& step, const ExpertUse& use) {
    const std::string name = "expert " + std::to_string(use.expert.value) + " of stage " +
                             std::to_string(step.stage) + " for sequence " +
                             std::to_string(use.seq.value);
    if (step.stage == 0 || use.seq.value >= sequences_.size())
        return wrong(name + ": there is no such use");
    const Sequence& s = sequences_[use.seq.value];
    if (!s.in_pass || s.stage != step.stage)
        return wrong(name + ": the sequence is not there");
    bool chosen = false;
    for (const Row& row : s.rows) {
        for (const Pair& pair : row.pairs) {
            if (pair.expert != use.expert)
                continue;
            chosen = true;
            if (pair.output)
                return wrong(name + ": it has been computed already");
        }
    }
    return chosen || wrong(name + ": its router did not choose it");
}

bool SimCompute::check_pass(const PassInput& pass) {
    const Sequence& s = sequences_[pass.seq.value];
    const uint32_t tokens = static_cast<uint32_t>(pass.tokens.size());
    const uint32_t chunk = options_.chunk_tokens;
    if (tokens == 0)
        return wrong("a pass of no tokens");
    if (tokens > 1 && pass.first_position / chunk != (pass.first_position + tokens - 1) / chunk)
        return wrong("a pass of " + std::to_string(tokens) + " tokens from position " +
                     std::to_string(pass.first_position) + " crosses a chunk border");
    if (s.in_pass)
        return wrong("a pass begins before the last one of its sequence has ended");
    // Position 0: a new request; what the last one left is void. At a border a new one may go on
    // from there.
    if (pass.first_position != 0 && pass.first_position != s.computed &&
        !has_border(s, pass.first_position))
        return wrong("a pass from position " + std::to_string(pass.first_position) + " after " +
                     std::to_string(s.computed) + " positions");
    return true;
}

Duration SimCompute::cost(const ComputeStep& step) const {
    uint64_t bytes = step.advancing.empty() ? 0 : options_.dense_bytes[step.stage];
    uint64_t rows = 0;
    for (size_t i = 0; i < step.uses.size(); i++) {
        const ExpertUse& use = step.uses[i];
        if (i == 0 || step.uses[i - 1].expert != use.expert)
            bytes += options_.expert_bytes;
        rows += rows_that_chose(sequences_[use.seq.value], use.expert);
    }
    for (const PassInput& pass : step.passes)
        rows += pass.tokens.size();
    return options_.launch + options_.row * static_cast<int64_t>(rows) +
           Duration{static_cast<int64_t>(bytes * 1'000'000'000 / options_.bytes_per_second)};
}

uint32_t SimCompute::rows_that_chose(const Sequence& s, ExpertIndex expert) {
    return static_cast<uint32_t>(std::ranges::count_if(s.rows, [&](const Row& row) {
        return std::ranges::contains(row.pairs, expert, &Pair::expert);
    }));
}

void SimCompute::finish(bool fails) {
    StepResult result{.started = started_, .finished = clock_.now()};
    run_uses();
    if (fails) {
        result.error = Error{ErrorCode::kIo, "the simulated backend failed", {}};
    } else {
        for (const PassInput& pass : running_->passes)
            begin_pass(pass);
        for (SeqIndex seq : running_->advancing)
            result.results.push_back(advance(seq));
    }
    for (const ExpertUse& use : running_->uses)
        memory_.end_use(use.slot);
    running_.reset();
    result_ = std::move(result);
    wake_();
}

void SimCompute::run_uses() {
    for (const ExpertUse& use : running_->uses) {
        // What lies in the slot at the end of the step: had it changed meanwhile, the reply would.
        const uint64_t bytes = memory_.bytes(use.slot);
        for (Row& row : sequences_[use.seq.value].rows) {
            for (Pair& pair : row.pairs) {
                if (pair.expert == use.expert)
                    pair.output = SimModel::expert_output(row.hidden, bytes);
            }
        }
    }
}

void SimCompute::begin_pass(const PassInput& pass) {
    Sequence& s = sequences_[pass.seq.value];
    if (pass.first_position == 0) {
        // It may have been abandoned since this step began; that counts from the next one on.
        const bool abandoned = s.abandoned;
        s = Sequence{.text = pass.tokens[0]};
        s.abandoned = abandoned;
        s.memory.resize(options_.model.layers + 1);
    } else if (has_border(s, pass.first_position)) {
        s.memory = s.borders[pass.first_position / options_.chunk_tokens - 1];
    }
    s.borders.resize(
        std::min<size_t>(s.borders.size(), pass.first_position / options_.chunk_tokens));
    s.first = pass.first_position;
    s.computed = pass.first_position;
    s.in_pass = true;
    s.stage = 0;
    s.wants_logits = pass.wants_logits;
    s.logits.clear();
    s.rows.clear();
    for (TokenId token : pass.tokens)
        s.rows.push_back({.hidden = SimModel::embed(token, s.computed++), .pairs = {}});
}

SeqResult SimCompute::advance(SeqIndex seq) {
    Sequence& s = sequences_[seq.value];
    const SimModel& model = options_.model;
    for (Row& row : s.rows) {
        if (s.stage == 0)
            break;
        std::vector<uint64_t> outputs;
        outputs.reserve(row.pairs.size());
        for (const Pair& pair : row.pairs)
            outputs.push_back(*pair.output);
        row.hidden = SimModel::combine(row.hidden, outputs);
    }
    const uint32_t stage = s.stage++;
    if (stage == model.layers) {
        if (!model.last_layer_is_moe)
            attend(s, stage);
        end_pass(s);
        if (s.wants_logits)
            s.logits = SimModel::logits(s.rows.back().hidden);
        return {seq, {}};
    }
    attend(s, stage);
    if (!s.wants_logits && model.last_layer_is_moe && stage + 1 == model.layers) {
        end_pass(s);
        return {seq, {}};
    }
    SeqResult result{.seq = seq, .route = route(s, stage)};
    if (running_->wants_guesses)
        result.guesses = guess(s, stage);
    return result;
}

std::vector<ExpertIndex> SimCompute::guess(const Sequence& s, uint32_t layer) const {
    std::vector<ExpertIndex> guesses;
    for (uint32_t ahead = 1; ahead <= options_.guessed_layers && s.rows.size() == 1; ahead++) {
        if (layer + ahead < options_.model.layers)
            guesses.append_range(options_.model.route(s.rows[0].hidden, layer + ahead, s.text));
    }
    return guesses;
}

void SimCompute::end_pass(Sequence& s) {
    s.in_pass = false;
    const uint32_t chunk = options_.chunk_tokens;
    if (s.rows.size() == chunk && s.first == s.borders.size() * chunk)
        s.borders.push_back(s.memory);
}

bool SimCompute::has_border(const Sequence& s, uint32_t position) const {
    const uint32_t chunk = options_.chunk_tokens;
    return position > 0 && position % chunk == 0 && s.borders.size() >= position / chunk;
}

void SimCompute::attend(Sequence& s, uint32_t layer) {
    for (Row& row : s.rows)
        row.hidden = SimModel::attend(row.hidden, layer, s.memory[layer]);
}

std::vector<RoutedExpert> SimCompute::route(Sequence& s, uint32_t layer) const {
    std::map<ExpertIndex, uint32_t> rows;  // ascending, as a chunk wants it
    for (Row& row : s.rows) {
        row.pairs.clear();
        for (ExpertIndex expert : options_.model.route(row.hidden, layer, s.text)) {
            row.pairs.push_back({expert, std::nullopt});
            rows[expert]++;
        }
    }
    std::vector<RoutedExpert> route;
    route.reserve(rows.size());
    if (s.rows.size() == 1) {
        for (const Pair& pair : s.rows[0].pairs)
            route.push_back({pair.expert, 1});
        return route;
    }
    for (auto [expert, count] : rows)
        route.push_back({expert, count});
    return route;
}

}  // namespace bevy
