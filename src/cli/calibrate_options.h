// What the user can say to bevy calibrate.
#pragma once

#include <cstdint>
#include <string>

#include "cli/options.h"

namespace bevy {

struct CalibrateOptions {
    // Of this, policy, parallel and expert_cache are set for each run.
    SessionOptions session;
    uint32_t tokens = 24;     // measured per run and request
    std::string hardware_to;  // path
    std::string model_to;     // path
    bool quiet = false;
};

// Declares the options; parsing fills the struct, which must outlive `app`.
void declare_calibrate_options(CLI::App& app, CalibrateOptions& options);

}  // namespace bevy
