#include "server/static_files.h"

#include <algorithm>

#include "server/web_files.h"

namespace bevy {
namespace {

constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

const char* content_type(std::string_view path) {
    if (path.ends_with(".html"))
        return "text/html; charset=utf-8";
    if (path.ends_with(".js"))
        return "text/javascript; charset=utf-8";
    if (path.ends_with(".css"))
        return "text/css; charset=utf-8";
    if (path.ends_with(".svg"))
        return "image/svg+xml";
    return "application/octet-stream";
}

std::string route_of(const WebFile& file) {
    return file.path == "/index.html" ? "/" : std::string(file.path);
}

HttpReply reply_with(const WebFile& file) {
    HttpReply reply;
    reply.content_type = content_type(file.path);
    reply.body = file.content;
    reply.headers = {{"Content-Security-Policy", kPolicy},
                     {"X-Content-Type-Options", "nosniff"},
                     {"Referrer-Policy", "no-referrer"},
                     {"Cache-Control", "no-cache"}};
    return reply;
}

}  // namespace

std::vector<HttpRoute> static_routes() {
    std::vector<HttpRoute> routes;
    for (const WebFile& file : web_files())
        routes.push_back(
            {"GET", route_of(file), [&file](const HttpRequest&) { return reply_with(file); }});
    return routes;
}

bool is_static_file(const std::string& path) {
    return std::ranges::any_of(web_files(),
                               [&](const WebFile& file) { return route_of(file) == path; });
}

}  // namespace bevy
