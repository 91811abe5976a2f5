// The HTTP server for one model: `bevy serve` without the command line.
//
// Life: open() listens at once and answers /health with the progress of loading; serve() makes it
// ready; drain() refuses new work while what runs goes on; close() ends everything. The model's
// engine must be stopped between the last drain() and close() if something still runs, which makes
// every handler return.
// Threads: open(), serve(), drain(), close() and the destructor one thread; progress() any.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"
#include "server/served_model.h"
#include "server/server_options.h"

namespace bevy {

class Server {
public:
    // `parallel`: requests that the model will run at once. Errors: the address can't be had, or
    // the certificate can't be used.
    static Result<std::unique_ptr<Server>> open(const ServerOptions& options, uint32_t parallel);
    ~Server();
    Server(const Server&) = delete;
    Server& operator=(const Server&) = delete;

    // How much of the model is loaded.
    void progress(uint64_t done, uint64_t total);
    // `model` outlives this server's close().
    void serve(const ServedModel& model);
    // New requests get 503 from now on.
    void drain();
    // Generations and replies that are still under way.
    uint32_t busy() const;
    void close();

    // Where it listens, for people.
    std::string url() const;

private:
    struct Impl;
    explicit Server(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace bevy
