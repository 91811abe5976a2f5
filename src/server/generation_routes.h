// The endpoints that generate text.
#pragma once

#include <vector>

#include "server/http_server.h"
#include "server/server_state.h"

namespace bevy {

// `state` outlives the server that gets them.
std::vector<HttpRoute> generation_routes(ServerState& state);

}  // namespace bevy
