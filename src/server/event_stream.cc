#include "server/event_stream.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace bevy {
namespace {

// How soon a client who has gone is noticed.
constexpr Duration kLookAround = milliseconds(50);

// A generation and its writer, read to the end.
class Reading {
public:
    Reading(std::unique_ptr<Generation> generation, std::unique_ptr<ReplyWriter> writer)
        : generation_(std::move(generation)),
          writer_(std::move(writer)),
          ended_(generation_->size()) {}

    // Takes what has come; returns the events that it makes.
    std::string read() {
        std::string events;
        for (size_t i = 0; i < generation_->size(); ++i) {
            if (ended_[i])
                continue;
            TokenStream& stream = generation_->stream(i);
            for (GeneratedToken& token : stream.take())
                events += writer_->token(i, std::move(token));
            const std::optional<GenerationEnd>& end = stream.end();
            if (!end)
                continue;
            ended_[i] = true;
            if (end->error)
                error_ = api_error(*end->error);
            else
                events += writer_->end(i, *end);
        }
        return events;
    }

    void wait() { generation_->wait(kLookAround); }
    bool all_ended() const {
        return std::ranges::all_of(ended_, [](bool ended) { return ended; });
    }
    // Of one of the texts; there is no reply then.
    const std::optional<ApiError>& error() const { return error_; }
    ReplyWriter& writer() { return *writer_; }

private:
    std::unique_ptr<Generation> generation_;
    std::unique_ptr<ReplyWriter> writer_;
    std::vector<bool> ended_;
    std::optional<ApiError> error_;
};

class EventStream final : public BodyStream {
public:
    EventStream(Reading reading, std::string first, uint32_t ping_s)
        : reading_(std::move(reading)),
          first_(std::move(first)),
          ping_after_(milliseconds(int64_t{1000} * ping_s)),
          told_at_(clock_.now()) {}

    State next(std::string& piece) override {
        piece = std::exchange(first_, {});
        if (piece.empty() && !reading_.all_ended()) {
            reading_.wait();
            piece = reading_.read();
        }
        if (reading_.error()) {
            piece += "data: " + error_json(*reading_.error()) + "\n\n";
            return State::kEnded;
        }
        if (reading_.all_ended()) {
            piece += reading_.writer().closing();
            return State::kEnded;
        }
        const Instant now = clock_.now();
        if (piece.empty() && ping_after_ > Duration{0} && now - told_at_ > ping_after_)
            piece = ":\n\n";
        if (!piece.empty())
            told_at_ = now;
        return State::kMore;
    }

private:
    SystemClock clock_;
    Reading reading_;
    std::string first_;
    const Duration ping_after_;
    Instant told_at_;
};

}  // namespace

HttpReply whole_reply(std::unique_ptr<Generation> generation, std::unique_ptr<ReplyWriter> writer,
                      const std::function<bool()>& client_gone) {
    Reading reading(std::move(generation), std::move(writer));
    while (true) {
        reading.read();
        if (reading.error())
            return error_reply(*reading.error());
        if (reading.all_ended())
            break;
        if (client_gone())
            return error_reply(server_error("the client has gone"));
        reading.wait();
    }
    HttpReply reply;
    reply.body = json_text(reading.writer().whole());
    return reply;
}

HttpReply streamed_reply(std::unique_ptr<Generation> generation,
                         std::unique_ptr<ReplyWriter> writer, uint32_t ping_s,
                         const std::function<bool()>& client_gone) {
    const SystemClock clock;
    const Instant begun = clock.now();
    const Duration patience = milliseconds(int64_t{1000} * (ping_s == 0 ? 1u << 20 : ping_s));
    Reading reading(std::move(generation), std::move(writer));
    std::string first = reading.read();
    while (first.empty() && !reading.error() && !reading.all_ended() &&
           clock.now() - begun < patience) {
        if (client_gone())
            return error_reply(server_error("the client has gone"));
        reading.wait();
        first = reading.read();
    }
    if (reading.error() && first.empty())
        return error_reply(*reading.error());
    HttpReply reply;
    reply.content_type = "text/event-stream";
    // Tells proxies not to collect the events.
    reply.headers.emplace_back("X-Accel-Buffering", "no");
    reply.headers.emplace_back("Cache-Control", "no-cache");
    reply.stream = std::make_unique<EventStream>(std::move(reading), std::move(first), ping_s);
    return reply;
}

}  // namespace bevy
