// The numbers of /metrics, in Prometheus's text format.
//
// Those that llama-server has too have its names, with the prefix llamacpp:, so that its dashboards
// work; Bevy's own begin with bevy:.
#pragma once

#include <string>

#include "engine/stats.h"
#include "server/admission.h"

namespace bevy {

struct MetricsInput {
    EngineSnapshot snapshot;
    Admission::Totals totals;
    uint32_t inside = 0;   // generations submitted and not ended
    uint32_t replies = 0;  // being written
    uint32_t parallel = 0;
    uint32_t expert_slots = 0;
};

std::string metrics_text(const MetricsInput& input);

}  // namespace bevy
