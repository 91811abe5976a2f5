// A request and a reply as the handlers see them, without the HTTP library.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace bevy {

// The names of headers in lower case.
struct HttpRequest {
    std::string method;
    std::string path;
    std::map<std::string, std::string> query;
    std::map<std::string, std::string> headers;
    std::string body;
    // Whether nobody waits for the reply any more. Valid while the handler runs; its thread only.
    std::function<bool()> client_gone = [] { return false; };

    // The header's value; empty if there is none.
    std::string header(const std::string& name) const {
        const auto found = headers.find(name);
        return found == headers.end() ? std::string() : found->second;
    }
};

// A body that is written while it is made. Called by the connection's thread; destroyed when it
// has ended or the client is gone, whatever comes first.
class BodyStream {
public:
    enum class State {
        kMore,   // write the piece, if it is not empty, and come again
        kEnded,  // write the piece; that was the last one
    };
    virtual ~BodyStream() = default;
    // Waits for the next piece, for a moment at most, so that a client who has gone is noticed.
    virtual State next(std::string& piece) = 0;
};

struct HttpReply {
    int status = 200;
    std::string content_type = "application/json; charset=utf-8";
    std::string body;
    std::vector<std::pair<std::string, std::string>> headers;
    std::unique_ptr<BodyStream> stream;  // in place of `body`
};

}  // namespace bevy
