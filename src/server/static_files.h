// Files that are part of the program and served as they are: the web page.
//
// They lie in src/server/web/ and are compiled in by CMake. Their replies carry a strict content
// security policy: the page runs its own files only, talks to this server only, and can't be
// framed.
#pragma once

#include <string>
#include <vector>

#include "server/http_server.h"

namespace bevy {

// "/" is index.html.
std::vector<HttpRoute> static_routes();
// Whether a route of static_routes() has this path: these are open to all, like the page itself.
bool is_static_file(const std::string& path);

}  // namespace bevy
