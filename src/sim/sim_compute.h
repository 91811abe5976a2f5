// A processor that runs the hash model on virtual time, and a strict one: it checks that every step
// is one that a real backend could have run, and records what is wrong with it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/prng.h"
#include "compute/compute.h"
#include "sim/sim_clock.h"
#include "sim/sim_log.h"
#include "sim/sim_memory.h"
#include "sim/sim_model.h"

namespace bevy {

struct SimComputeOptions {
    SimModel model;
    uint32_t sequences = 1;
    uint32_t chunk_tokens = 1;
    uint32_t guessed_layers = 0;
    uint32_t lanes = 1;  // passes of more than one token that may be under way at once
    uint64_t expert_bytes = 1 << 20;
    std::vector<uint64_t> dense_bytes;  // per stage
    uint64_t bytes_per_second = 10'000'000'000;
    Duration launch = microseconds(10);
    Duration row = microseconds(1);  // per (token, expert) and per token of a dense part
    uint32_t fail_per_mille = 0;     // steps that end with an error
    Instant faults_until;            // none start to fail later
};

class SimCompute final : public Compute {
public:
    // `wake` is called when a step has finished.
    SimCompute(SimComputeOptions options, uint64_t seed, SimClock& clock, SimMemory& memory,
               SimLog& log, std::function<void()> wake);

    void start(ComputeStep step) override;
    std::optional<StepResult> poll() override;
    void abandon(SeqIndex seq) override { sequences_[seq.value].abandoned = true; }
    std::span<const float> logits(SeqIndex seq) const override;

private:
    // One expert that a row's router chose.
    struct Pair {
        ExpertIndex expert;
        std::optional<uint64_t> output;
    };
    struct Row {
        uint64_t hidden = 0;
        std::vector<Pair> pairs;  // of the current stage, in router order
    };
    // What a backend keeps for a sequence.
    struct Sequence {
        TokenId text = 0;              // first token
        uint32_t first = 0;            // position of the pass
        uint32_t computed = 0;         // positions whose pass has begun
        std::vector<uint64_t> memory;  // per layer
        // [i]: the memory behind i + 1 chunks, each computed in one pass: what another request may
        // go on from.
        std::vector<std::vector<uint64_t>> borders;
        bool in_pass = false;
        bool abandoned = false;  // its pass ends with the next start()
        bool wants_logits = false;
        uint32_t stage = 0;  // that comes next, if in a pass
        std::vector<Row> rows;
        std::vector<float> logits;
    };

    bool check(const ComputeStep& step);
    uint32_t lanes_taken(const ComputeStep& step) const;
    bool check_use(const ComputeStep& step, const ExpertUse& use);
    bool check_pass(const PassInput& pass);
    bool wrong(const std::string& what);
    Duration cost(const ComputeStep& step) const;
    void finish(bool fails);
    void run_uses();
    void begin_pass(const PassInput& pass);
    SeqResult advance(SeqIndex seq);
    void end_pass(Sequence& s);
    bool has_border(const Sequence& s, uint32_t position) const;
    void attend(Sequence& s, uint32_t layer);
    std::vector<RoutedExpert> route(Sequence& s, uint32_t layer) const;
    std::vector<ExpertIndex> guess(const Sequence& s, uint32_t layer) const;
    static uint32_t rows_that_chose(const Sequence& s, ExpertIndex expert);

    const SimComputeOptions options_;
    Prng prng_;
    SimClock& clock_;
    SimMemory& memory_;
    SimLog& log_;
    std::function<void()> wake_;
    std::vector<Sequence> sequences_;
    std::optional<ComputeStep> running_;
    Instant started_;
    std::optional<StepResult> result_;
};

}  // namespace bevy
