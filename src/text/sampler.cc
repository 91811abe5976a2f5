#include "text/sampler.h"

#include <cmath>
#include <cstdio>
#include <initializer_list>

namespace bevy {
namespace {

constexpr float kBiasMax = 1e6f;

struct Range {
    const char* field;
    double value;
    double low;
    double high;
};

std::string number(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return text;
}

}  // namespace

Status validate(const SamplingParams& params) {
    // The upper bounds keep products of the largest logits inside a float; useful values are far
    // below.
    const std::initializer_list<Range> ranges = {
        {"temperature", params.temperature, -1000, 1000},
        {"top_p", params.top_p, 0, 1},
        {"min_p", params.min_p, 0, 1},
        {"typical_p", params.typical_p, 0, 1},
        {"top_n_sigma", params.top_n_sigma, -1000, 1000},
        {"xtc_probability", params.xtc_probability, 0, 1},
        {"xtc_threshold", params.xtc_threshold, 0, 1},
        {"repeat_last_n", static_cast<double>(params.repeat_last_n), -1, 1e9},
        {"repeat_penalty", params.repeat_penalty, 0.001, 1000},
        {"presence_penalty", params.presence_penalty, -1000, 1000},
        {"frequency_penalty", params.frequency_penalty, -1000, 1000},
        {"dry_multiplier", params.dry_multiplier, 0, 1000},
        {"dry_base", params.dry_base, 0, 1000},
        {"dry_allowed_length", static_cast<double>(params.dry_allowed_length), 0, 1e9},
        {"dry_penalty_last_n", static_cast<double>(params.dry_penalty_last_n), -1, 1e9},
    };
    for (const Range& range : ranges) {
        // Written so that a NaN fails.
        if (!(range.value >= static_cast<float>(range.low) &&
              range.value <= static_cast<float>(range.high)))
            return fail(ErrorCode::kInvalidArgument,
                        std::string(range.field) + " is " + number(range.value),
                        std::string(range.field) + " must be between " + number(range.low) +
                            " and " + number(range.high));
    }
    for (const LogitBias& bias : params.logit_bias) {
        if (std::isnan(bias.bias) || bias.bias > kBiasMax)
            return fail(
                ErrorCode::kInvalidArgument,
                "logit_bias of token " + std::to_string(bias.token) + " is " + number(bias.bias),
                "logit_bias must be at most " + number(kBiasMax));
    }
    return {};
}

}  // namespace bevy
