#include "server/server.h"

#include <algorithm>
#include <array>
#include <format>
#include <optional>
#include <utility>
#include <vector>

#include "server/api_error.h"
#include "server/control_routes.h"
#include "server/generation_routes.h"
#include "server/http_server.h"
#include "server/server_state.h"
#include "server/static_files.h"

namespace bevy {
namespace {

constexpr uint64_t kBodyBytesMax = uint64_t{16} << 20;
// Connections beyond those that generate or wait: for control, and for clients that stay connected.
constexpr uint32_t kConnectionsSpare = 64;

bool is_public(const std::string& path) {
    static constexpr std::array kPublic = {"/health", "/v1/health"};
    return std::ranges::contains(kPublic, path);
}

bool is_local_origin(std::string_view origin) {
    const size_t scheme = origin.find("://");
    if (scheme == std::string_view::npos)
        return false;
    const std::string_view host = origin.substr(scheme + 3);
    return std::ranges::any_of(
        std::array{"localhost", "127.0.0.1", "[::1]"}, [&](std::string_view local) {
            return host == local || (host.starts_with(local) && host[local.size()] == ':');
        });
}

class Gate {
public:
    explicit Gate(const ServerState& state) : state_(state) {}

    // What is answered before the handler, and before the body is read.
    std::optional<HttpReply> before(const HttpRequest& request) const {
        if (request.method == "OPTIONS")
            return preflight();
        if (is_public(request.path))
            return std::nullopt;
        if (state_.keys.needed() && !is_static_file(request.path) && !authorized(request))
            return error_reply(wrong_api_key());
        if (state_.admission.closed())
            return error_reply(unavailable("The server is shutting down"));
        if (state_.model.load() == nullptr && !is_static_file(request.path))
            return error_reply(unavailable("Loading model", 1));
        return std::nullopt;
    }

    void after(const HttpRequest& request, HttpReply& reply) const {
        reply.headers.emplace_back("Server", "bevy");
        const std::string origin = request.header("origin");
        if (!origin.empty() && allows(origin)) {
            reply.headers.emplace_back("Access-Control-Allow-Origin", origin);
            reply.headers.emplace_back("Access-Control-Allow-Credentials", "true");
            reply.headers.emplace_back("Vary", "Origin");
        }
    }

private:
    bool authorized(const HttpRequest& request) const {
        const std::string bearer = request.header("authorization");
        return state_.keys.opens(bearer.empty() ? request.header("x-api-key") : bearer);
    }

    bool allows(const std::string& origin) const {
        const std::string& origins = state_.options.cors_origins;
        if (origins == "*")
            return true;
        if (origins == "localhost")
            return is_local_origin(origin);
        std::string_view rest = origins;
        while (!rest.empty()) {
            const size_t end = std::min(rest.find(','), rest.size());
            if (rest.substr(0, end) == origin)
                return true;
            rest.remove_prefix(std::min(end + 1, rest.size()));
        }
        return false;
    }

    static HttpReply preflight() {
        HttpReply reply;
        reply.content_type = "text/html";
        reply.headers = {
            {"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
            {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key"}};
        return reply;
    }

    const ServerState& state_;
};

}  // namespace

struct Server::Impl {
    Impl(const ServerOptions& options, uint32_t parallel) : state(options, parallel), gate(state) {}

    ServerState state;
    const Gate gate;
    std::unique_ptr<HttpServer> http;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Server::~Server() {
    close();
}

Result<std::unique_ptr<Server>> Server::open(const ServerOptions& options, uint32_t parallel) {
    auto impl = std::make_unique<Impl>(options, parallel);
    Impl& parts = *impl;
    std::vector<HttpRoute> routes = generation_routes(parts.state);
    std::ranges::move(control_routes(parts.state), std::back_inserter(routes));
    if (options.web_ui)
        std::ranges::move(static_routes(), std::back_inserter(routes));
    HttpCallbacks callbacks;
    callbacks.before = [&parts](const HttpRequest& r) { return parts.gate.before(r); };
    callbacks.after = [&parts](const HttpRequest& r, HttpReply& reply) {
        parts.gate.after(r, reply);
    };
    callbacks.on_error = [](int status) { return error_reply(http_error(status)); };
    callbacks.on_exception = [](const std::string& what) {
        return error_reply(server_error("unexpected: " + what));
    };
    if (options.log)
        callbacks.log = [&parts](const HttpRequest& r, int status) {
            parts.state.options.log(std::format("{} {} {}", r.method, r.path, status));
        };
    HttpServerOptions http;
    http.host = options.host;
    http.port = options.port;
    http.connections_max = options.connections_max != 0
                               ? options.connections_max
                               : parts.state.admission.capacity() + kConnectionsSpare;
    http.timeout_s = options.timeout_s;
    http.body_bytes_max = kBodyBytesMax;
    http.ssl_certificate_file = options.ssl_certificate_file;
    http.ssl_key_file = options.ssl_key_file;
    Result<std::unique_ptr<HttpServer>> bound =
        HttpServer::bind(http, std::move(routes), std::move(callbacks));
    if (!bound)
        return std::unexpected(bound.error());
    parts.http = std::move(*bound);
    parts.http->start();
    return std::unique_ptr<Server>(new Server(std::move(impl)));
}

void Server::progress(uint64_t done, uint64_t total) {
    impl_->state.loaded_bytes = done;
    impl_->state.loading_bytes = total;
}

void Server::serve(const ServedModel& model) {
    impl_->state.model = &model;
}

void Server::drain() {
    impl_->state.admission.close();
}

uint32_t Server::busy() const {
    return std::max(impl_->state.admission.inside(), impl_->state.admission.replies());
}

void Server::close() {
    drain();
    impl_->http->stop();
}

std::string Server::url() const {
    return impl_->http->url();
}

}  // namespace bevy
