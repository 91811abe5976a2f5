// The processor, as the engine sees it: runs one step at a time and says what the routers chose.
//
// A model with M routed (MoE) layers is cut into stages 0 .. M. Stage s runs, for a group of
// sequences:
//   - the experts of MoE layer s-1 that the step names (nothing for s = 0), storing each token's
//     expert outputs apart;
//   - then, for the sequences that advance: the sum of those outputs in router order, and the dense
//   part
//     that follows: for s = 0 the embedding and all layers up to the router of MoE layer 0; for 0 <
//     s < M everything up to the router of MoE layer s; for s = M the output head.
// A pass takes one run of tokens of one sequence through all stages: one token in decode, a chunk
// in prefill. A pass that wants no logits ends with stage M-1, when `last_layer_is_moe`.
//
// Results do not depend on which sequences share a step, in which steps a sequence's experts run,
// or in which slots they lie.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/ids.h"
#include "base/units.h"

namespace bevy {

// Run `expert` for all rows of `seq`'s current pass that chose it.
struct ExpertUse {
    SeqIndex seq;
    ExpertIndex expert;
    SlotIndex slot;
};

// What a sequence computes in the pass that starts with a stage 0 step.
struct PassInput {
    SeqIndex seq;
    std::vector<TokenId> tokens;  // 1 .. chunk length
    uint32_t first_position = 0;  // of tokens[0]; all earlier positions have been computed
    bool wants_logits = false;    // of the last token
};

struct ComputeStep {
    uint32_t stage = 0;
    std::vector<ExpertUse> uses;  // sorted by (expert, seq), no duplicates
    std::vector<SeqIndex>
        advancing;                  // ascending; every use of these is done once this step has run
    std::vector<PassInput> passes;  // stage 0 only, parallel to `advancing`
    bool wants_guesses = false;     // else SeqResult::guesses stay empty
};

struct RoutedExpert {
    ExpertIndex expert;
    uint32_t rows = 0;  // tokens of the pass that chose it
};

struct SeqResult {
    SeqIndex seq;
    // The distinct experts chosen at MoE layer `stage`: in router order (highest weight first) for
    // a pass of one token, else ascending. Empty after the head, or when the pass has ended.
    std::vector<RoutedExpert> route;
    // What the routers of the following MoE layers would choose from the hidden state that this
    // router saw: experts_used for each of ComputeShape::guessed_layers, highest weight first;
    // short near the last layer, empty unless the pass is one token and the step wants guesses.
    std::vector<ExpertIndex> guesses = {};
};

struct StepResult {
    std::vector<SeqResult> results;  // parallel to ComputeStep::advancing
    Instant started;
    Instant finished;
    std::optional<Error> error;  // the backend failed; results are empty
};

// All functions are for the engine thread.
class Compute {
public:
    virtual ~Compute() = default;

    // Starts a step and returns. REQUIRES: no step is in flight.
    virtual void start(ComputeStep step) = 0;

    // The finished step, once; nothing while it runs or when none was started. When a step
    // finishes, the waker given at construction is called from the compute thread.
    virtual std::optional<StepResult> poll() = 0;

    // The pass of `seq` will not go on (its request was cancelled or failed): what it holds is free
    // from the next start() on. REQUIRES: called before `seq` starts another pass. A step in flight
    // may still name `seq`; later ones must not, before its next stage 0.
    virtual void abandon(SeqIndex seq) = 0;

    // Logits of the last row of the pass that `seq` completed: vocabulary-size floats, valid until
    // its next pass starts.
    virtual std::span<const float> logits(SeqIndex seq) const = 0;
};

// Numbers about a model that scheduling and planning need. Plain data.
struct ComputeShape {
    uint32_t moe_layers = 0;
    uint32_t experts_per_layer = 0;
    uint32_t experts_used = 0;
    bool last_layer_is_moe = true;
    uint32_t guessed_layers = 0;        // see SeqResult::guesses
    std::vector<uint64_t> dense_bytes;  // weight bytes that the dense part of stage 0 .. M reads
};

}  // namespace bevy
