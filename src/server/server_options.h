// What the operator of a server can choose.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "server/generation_settings.h"

namespace bevy {

struct ServerOptions {
    std::string host = "127.0.0.1";
    uint16_t port = 8080;
    std::vector<std::string> api_keys;  // any of them opens; none: open to all
    std::string ssl_key_file;
    std::string ssl_certificate_file;
    std::vector<std::string> aliases;  // names of the model; the last one is in the replies
    uint32_t connections_max = 0;      // 0: as many as the queue needs, and some
    uint32_t timeout_s = 600;          // for reading and writing
    uint32_t ping_s = 30;              // a comment in streams that are silent so long; 0: none
    uint32_t queue_max = 64;           // requests that may wait while all sequences are busy
    bool metrics = false;
    bool slots = true;
    bool web_ui = true;
    // Origins of pages that browsers may let read replies: "*", or "localhost", or a list.
    std::string cors_origins = "localhost";
    GenerationSettings defaults;
    std::function<void(const std::string& line)> log;  // one line per request; may be empty
};

}  // namespace bevy
