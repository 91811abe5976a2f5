#include "server/http_server.h"

// The library is not written for our warning level.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"
#pragma GCC diagnostic ignored "-Wconversion"
#include <httplib.h>
#pragma GCC diagnostic pop

#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <exception>
#include <format>
#include <thread>

namespace bevy {
namespace {

constexpr int kBacklog = 512;
// Connections that may wait for a thread; a burst passes through it, an overload does not grow it.
constexpr size_t kWaitingConnectionsMax = 256;
constexpr size_t kThreadsKept = 4;

std::string lower(std::string text) {
    std::ranges::transform(text, text.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

bool client_gone(const httplib::Request& request) {
    if (request.ssl == nullptr)
        return request.is_connection_closed();
    // Behind the farewell of TLS, which counts as something to read, the connection is closed.
    const int socket = SSL_get_fd(static_cast<const SSL*>(request.ssl));
    pollfd wanted = {.fd = socket, .events = POLLRDHUP, .revents = 0};
    return poll(&wanted, 1, 0) > 0 && (wanted.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

HttpRequest convert(const httplib::Request& request) {
    HttpRequest converted;
    converted.method = request.method;
    converted.path = request.path;
    for (const auto& [name, value] : request.params)
        converted.query.emplace(name, value);
    for (const auto& [name, value] : request.headers)
        converted.headers.emplace(lower(name), value);
    converted.body = request.body;
    converted.client_gone = [&request] { return client_gone(request); };
    return converted;
}

void give(HttpReply reply, const httplib::Request& request, httplib::Response& response) {
    response.status = reply.status;
    for (const auto& [name, value] : reply.headers)
        response.set_header(name, value);
    if (!reply.stream) {
        response.set_content(std::move(reply.body), reply.content_type);
        return;
    }
    const std::shared_ptr<BodyStream> stream = std::move(reply.stream);
    const auto provide = [stream, &request](size_t, httplib::DataSink& sink) {
        try {
            std::string piece;
            const BodyStream::State state = stream->next(piece);
            if (!piece.empty() && !sink.write(piece.data(), piece.size()))
                return false;
            if (state == BodyStream::State::kEnded)
                sink.done();
            return state == BodyStream::State::kEnded || !client_gone(request);
        } catch (...) {
            return false;  // the headers are sent: all that is left is to break off
        }
    };
    response.set_chunked_content_provider(reply.content_type, provide);
}

std::string what_of(const std::exception_ptr& thrown) {
    try {
        std::rethrow_exception(thrown);
    } catch (const std::exception& e) {
        return e.what();
    } catch (...) {
        return "unknown exception";
    }
}

Error bind_error(const HttpServerOptions& options, int cause) {
    const std::string address = options.host.ends_with(".sock")
                                    ? options.host
                                    : std::format("{}:{}", options.host, options.port);
    if (cause == EADDRINUSE)
        return {ErrorCode::kIo, "can't listen on " + address + ": the address is in use",
                "end the program that uses it, or give another --port"};
    if (cause == EACCES)
        return {ErrorCode::kIo, "can't listen on " + address + ": permission denied",
                "ports below 1024 are for root; give another --port"};
    return {ErrorCode::kIo,
            "can't listen on " + address + ": " +
                (cause == 0 ? std::string("there is no such address") : std::strerror(cause)),
            "give an address of this machine with --host, for example 127.0.0.1"};
}

}  // namespace

struct HttpServer::Impl {
    HttpServerOptions options;
    HttpCallbacks callbacks;
    std::unique_ptr<httplib::Server> server;
    int listening = -1;
    uint16_t port = 0;
    std::thread thread;

    HttpReply handle(const HttpRequest& request, const HttpHandler& handler) {
        HttpReply reply;
        try {
            reply = handler(request);
        } catch (...) {
            reply = callbacks.on_exception(what_of(std::current_exception()));
        }
        callbacks.after(request, reply);
        return reply;
    }

    void add(HttpRoute route) {
        const auto serve = [this, handler = std::move(route.handler)](
                               const httplib::Request& request, httplib::Response& response) {
            give(handle(convert(request), handler), request, response);
        };
        if (route.method == "GET")
            server->Get(route.path, serve);
        else
            server->Post(route.path, serve);
    }

    // Before the body is read.
    bool answered_before(const httplib::Request& request, httplib::Response& response) {
        const HttpRequest converted = convert(request);
        std::optional<HttpReply> reply;
        try {
            reply = callbacks.before(converted);
        } catch (...) {
            reply = callbacks.on_exception(what_of(std::current_exception()));
        }
        if (!reply)
            return false;
        callbacks.after(converted, *reply);
        give(std::move(*reply), request, response);
        return true;
    }

    void set_limits() {
        const size_t threads = options.connections_max;
        server->new_task_queue = [threads] {
            return new httplib::ThreadPool(std::min(threads, kThreadsKept), threads,
                                           kWaitingConnectionsMax);
        };
        server->set_payload_max_length(options.body_bytes_max);
        server->set_read_timeout(static_cast<time_t>(options.timeout_s));
        server->set_write_timeout(static_cast<time_t>(options.timeout_s));
        server->set_tcp_nodelay(true);
        // Not the library's SO_REUSEPORT, with which a second server takes half of the connections.
        server->set_socket_options([this](int socket) {
            listening = socket;
            const int yes = 1;
            setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
        });
    }

    void set_handlers() {
        using Handled = httplib::Server::HandlerResponse;
        server->set_pre_routing_handler([this](const auto& request, auto& response) {
            return answered_before(request, response) ? Handled::Handled : Handled::Unhandled;
        });
        server->set_error_handler([this](const auto& request, httplib::Response& response) {
            if (!response.body.empty())
                return;  // a handler's own reply
            HttpReply reply = callbacks.on_error(response.status);
            callbacks.after(convert(request), reply);
            give(std::move(reply), request, response);
        });
        server->set_exception_handler(
            [this](const auto& request, auto& response, const std::exception_ptr& thrown) {
                give(callbacks.on_exception(what_of(thrown)), request, response);
            });
        if (callbacks.log)
            server->set_logger([this](const auto& request, const auto& response) {
                callbacks.log(convert(request), response.status);
            });
    }

    Status listen() {
        const bool is_unix = options.host.ends_with(".sock");
        if (is_unix)
            server->set_address_family(AF_UNIX);
        errno = 0;
        // With Unix sockets the library wants some port.
        if (options.port == 0 && !is_unix) {
            const int chosen = server->bind_to_any_port(options.host);
            if (chosen < 0)
                return std::unexpected(bind_error(options, errno));
            port = static_cast<uint16_t>(chosen);
        } else {
            if (!server->bind_to_port(options.host, is_unix ? 80 : options.port))
                return std::unexpected(bind_error(options, errno));
            port = options.port;
        }
        ::listen(listening, kBacklog);  // the library's own is five
        return {};
    }
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
    stop();
}

Result<std::unique_ptr<HttpServer>> HttpServer::bind(const HttpServerOptions& options,
                                                     std::vector<HttpRoute> routes,
                                                     HttpCallbacks callbacks) {
    auto impl = std::make_unique<Impl>();
    impl->options = options;
    impl->callbacks = std::move(callbacks);
    if (options.ssl_certificate_file.empty() != options.ssl_key_file.empty())
        return fail(ErrorCode::kInvalidArgument, "TLS needs a certificate and its key",
                    "give both --ssl-cert-file and --ssl-key-file");
    if (options.ssl_key_file.empty()) {
        impl->server = std::make_unique<httplib::Server>();
    } else {
        impl->server = std::make_unique<httplib::SSLServer>(options.ssl_certificate_file.c_str(),
                                                            options.ssl_key_file.c_str());
        if (!impl->server->is_valid())
            return fail(ErrorCode::kInvalidArgument,
                        "can't use the certificate '" + options.ssl_certificate_file +
                            "' with the key '" + options.ssl_key_file + "'",
                        "both must be PEM files, and the key that of the certificate");
    }
    impl->set_limits();
    impl->set_handlers();
    for (HttpRoute& route : routes)
        impl->add(std::move(route));
    if (Status status = impl->listen(); !status)
        return std::unexpected(status.error());
    return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

void HttpServer::start() {
    impl_->thread = std::thread([server = impl_->server.get()] { server->listen_after_bind(); });
    impl_->server->wait_until_ready();
}

void HttpServer::stop() {
    impl_->server->stop();
    if (impl_->thread.joinable())
        impl_->thread.join();
}

uint16_t HttpServer::port() const {
    return impl_->port;
}

std::string HttpServer::url() const {
    const HttpServerOptions& options = impl_->options;
    if (options.host.ends_with(".sock"))
        return "unix:" + options.host;
    const std::string host = options.host.contains(':') ? "[" + options.host + "]" : options.host;
    return std::format("{}://{}:{}", options.ssl_key_file.empty() ? "http" : "https", host,
                       impl_->port);
}

}  // namespace bevy
