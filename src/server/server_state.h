// What all handlers share. Any thread; each part has its own lock or is constant.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <string>

#include "server/admission.h"
#include "server/api_keys.h"
#include "server/served_model.h"
#include "server/server_options.h"

namespace bevy {

struct ServerState {
    ServerState(const ServerOptions& wanted, uint32_t parallel)
        : options(wanted), keys(wanted.api_keys), admission(parallel, wanted.queue_max) {}

    const ServerOptions options;
    const ApiKeys keys;
    Admission admission;
    // Null while the model is being loaded; then it stays.
    std::atomic<const ServedModel*> model = nullptr;
    std::atomic<uint64_t> loaded_bytes = 0;
    std::atomic<uint64_t> loading_bytes = 0;  // in all; 0: not known yet
    const int64_t started = static_cast<int64_t>(std::time(nullptr));

    // How the model is called in replies.
    std::string model_name(const ServedModel& served) const {
        return options.aliases.empty() ? served.facts.path : options.aliases.back();
    }
    static std::string fingerprint() { return "bevy-" BEVY_VERSION; }
};

}  // namespace bevy
