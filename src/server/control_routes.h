// The endpoints that generate nothing: health, models, settings, numbers, tokens.
#pragma once

#include <vector>

#include "server/http_server.h"
#include "server/server_state.h"

namespace bevy {

// `state` outlives the server that gets them.
std::vector<HttpRoute> control_routes(ServerState& state);

}  // namespace bevy
