// The table of predictors: the names behind "prefetch-" in --policy, help and errors.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "core/predictor/predictor.h"

namespace bevy {

struct PredictorRow {
    std::string_view name;
    std::string_view summary;  // for --help
    // Lives on SequenceAdvanced::guesses: the compute backend has to deliver them.
    bool needs_guesses = false;
    // Those guesses must be the truth, which only a simulation knows.
    bool needs_truth = false;
    std::unique_ptr<Predictor> (*make)(const PredictorShape& shape);
};

std::span<const PredictorRow> predictors();

std::unique_ptr<Predictor> make_frequency_predictor(const PredictorShape& shape);
std::unique_ptr<Predictor> make_next_gate_predictor(const PredictorShape& shape);
std::unique_ptr<Predictor> make_previous_token_predictor(const PredictorShape& shape);
std::unique_ptr<Predictor> make_transition_predictor(const PredictorShape& shape);

}  // namespace bevy
