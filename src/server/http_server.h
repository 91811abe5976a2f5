// The HTTP server: listens, reads requests within limits, calls handlers, writes replies. The only
// file that knows the HTTP library.
//
// One thread per connection, taken from a pool that grows to `connections_max`; a connection beyond
// that waits in a short queue, and beyond the queue is closed. Whatever a handler throws becomes a
// reply with status 500.
// Threads: bind(), start(), stop() and the destructor one thread; handlers run on the pool's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "server/http_types.h"

namespace bevy {

using HttpHandler = std::function<HttpReply(const HttpRequest&)>;

struct HttpRoute {
    std::string method;  // GET or POST
    std::string path;    // exact; letters, digits, '/', '-', '_'
    HttpHandler handler;
};

struct HttpServerOptions {
    std::string host = "127.0.0.1";  // or the path of a Unix socket that ends in .sock
    uint16_t port = 8080;            // 0: any free one
    uint32_t connections_max = 64;
    uint32_t timeout_s = 3600;  // for reading a request and for writing a reply, while stuck
    uint64_t body_bytes_max = 0;
    std::string ssl_certificate_file;  // both or none
    std::string ssl_key_file;
};

struct HttpCallbacks {
    // Before the body is read; a reply here is sent instead of calling the handler.
    std::function<std::optional<HttpReply>(const HttpRequest&)> before;
    // Gives every reply what all have in common: headers.
    std::function<void(const HttpRequest&, HttpReply&)> after;
    // The reply for what never came to a handler: unknown path, malformed or too large request.
    std::function<HttpReply(int status)> on_error;
    // The reply for a handler that threw.
    std::function<HttpReply(const std::string& what)> on_exception;
    // One finished exchange, for the log. May be empty.
    std::function<void(const HttpRequest&, int status)> log;
};

class HttpServer {
public:
    // Takes the address. Errors: kIo (in use, not ours, no permission), kNotFound or
    // kInvalidArgument for a certificate or key that can't be used.
    static Result<std::unique_ptr<HttpServer>> bind(const HttpServerOptions& options,
                                                    std::vector<HttpRoute> routes,
                                                    HttpCallbacks callbacks);
    ~HttpServer();
    HttpServer(const HttpServer&) = delete;
    HttpServer& operator=(const HttpServer&) = delete;

    // Serves from a thread of its own until stop().
    void start();
    // Closes the address, ends streams that still run, and returns when no handler runs.
    void stop();

    uint16_t port() const;
    // "http://127.0.0.1:8080".
    std::string url() const;

private:
    struct Impl;
    explicit HttpServer(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace bevy
