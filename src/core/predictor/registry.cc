#include "core/predictor/registry.h"

#include <array>

namespace bevy {

namespace {

constexpr std::array kRows = {
    PredictorRow{.name = "next-gate",
                 .summary = "the next layers' routers applied to the current hidden state",
                 .needs_guesses = true,
                 .make = make_next_gate_predictor},
    PredictorRow{.name = "previous-token",
                 .summary = "what the last token used at that layer",
                 .make = make_previous_token_predictor},
    PredictorRow{
        .name = "frequency",
        .summary = "what the most similar earlier request used there (activation matrices)",
        .make = make_frequency_predictor},
    PredictorRow{.name = "transition",
                 .summary = "what usually follows the experts of this layer",
                 .make = make_transition_predictor},
    PredictorRow{.name = "oracle",
                 .summary = "the truth, an upper bound; in simulation only",
                 .needs_guesses = true,
                 .needs_truth = true,
                 .make = make_next_gate_predictor},
};

}  // namespace

std::span<const PredictorRow> predictors() {
    return kRows;
}

}  // namespace bevy
