// Output for pipes and files: whole texts, or JSON lines.
#include <format>
#include <nlohmann/json.hpp>

#include "base/units.h"
#include "cli/run_view.h"
#include "cli/terminal.h"

namespace bevy {
namespace {

constexpr Duration kProgressEvery = {10'000'000'000};

class PlainView final : public RunView {
public:
    PlainView(std::FILE* out, std::FILE* progress, const ViewOptions& options)
        : out_(out), progress_(progress), options_(options) {}

    void update(const std::vector<RunRequest>& requests, const EngineSnapshot& snapshot) override {
        const Duration wall = snapshot.stats.wall;
        if (options_.quiet || wall - shown_ < kProgressEvery)
            return;
        size_t done = 0;
        for (const RunRequest& request : requests)
            done += request.reported;
        std::fprintf(progress_, "%zu of %zu requests done, %s\n", done, requests.size(),
                     status_line(snapshot.stats.since(earlier_), snapshot).c_str());
        earlier_ = snapshot.stats;
        shown_ = wall;
    }

    void finished(const RunRequest& request) override {
        const RequestOutcome outcome = outcome_of(request);
        if (!options_.quiet)
            std::fprintf(out_, "[%u] %s\n", request.index, one_line(request.prompt).c_str());
        std::fwrite(outcome.text.data(), 1, outcome.text.size(), out_);
        std::fputc('\n', out_);
        const std::string reason = finish_reason_of(outcome);
        if (reason == "cancelled" && !options_.quiet)
            std::fputs("[cancelled]\n", out_);
        if (!options_.quiet)
            std::fputc('\n', out_);
        std::fflush(out_);
        if (outcome.error)
            std::fprintf(progress_, "bevy: error: request %u: %s\n", request.index,
                         outcome.error->text().c_str());
    }

    void close() override { std::fflush(out_); }
    bool output_works() const override { return std::ferror(out_) == 0; }

private:
    std::FILE* out_;
    std::FILE* progress_;
    ViewOptions options_;
    Duration shown_;
    EngineStats earlier_;
};

class JsonlView final : public RunView {
public:
    explicit JsonlView(std::FILE* out) : out_(out) {}

    void update(const std::vector<RunRequest>&, const EngineSnapshot&) override {}

    void finished(const RunRequest& request) override {
        const RequestOutcome outcome = outcome_of(request);
        const RequestTimings& t = outcome.timings;
        nlohmann::ordered_json line = {
            {"index", request.index},
            {"prompt", request.prompt},
            {"text", outcome.text},
            {"tokens", {{"prompt", request.tokens_prompt}, {"generated", t.tokens_generated}}},
            {"finish_reason", finish_reason_of(outcome)},
            {"timings",
             {{"queued_s", t.queued.seconds()},
              {"prefill_s", t.prefill.seconds()},
              {"decode_s", t.decode.seconds()},
              {"waiting_for_experts_s", t.waiting_for_experts.seconds()},
              {"computing_s", t.computing.seconds()}}},
            {"error", nullptr},
        };
        if (outcome.error)
            line["error"] = {{"message", outcome.error->message}, {"hint", outcome.error->hint}};
        // A prompt may hold any bytes; they must not end the output.
        const std::string text =
            line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
        std::fwrite(text.data(), 1, text.size(), out_);
        std::fputc('\n', out_);
        std::fflush(out_);
    }

    void close() override { std::fflush(out_); }
    bool output_works() const override { return std::ferror(out_) == 0; }

private:
    std::FILE* out_;
};

}  // namespace

RequestOutcome outcome_of(const RunRequest& request) {
    if (request.sink)
        return request.sink->outcome();
    RequestOutcome outcome;
    outcome.finished = true;
    outcome.reason = request.refused ? FinishReason::kError : FinishReason::kCancelled;
    outcome.timings.tokens_prompt = request.tokens_prompt;
    outcome.error = request.refused;
    return outcome;
}

std::string finish_reason_of(const RequestOutcome& outcome) {
    return finish_reason_name(outcome.reason);
}

std::string state_text(const RequestProgress& progress) {
    if (progress.phase == RequestPhase::kQueued)
        return "queued";
    std::string text = "decoding";
    if (progress.prefill) {
        const uint32_t total = std::max(progress.tokens_prompt, 1u);
        text = std::format("prefill {} %", 100 * std::min(progress.position, total) / total);
    }
    if (progress.phase == RequestPhase::kWaiting)
        text += std::format(", waiting for {} expert{}", progress.missing_experts,
                            progress.missing_experts == 1 ? "" : "s");
    return text;
}

std::string status_line(const EngineStats& recent, const EngineSnapshot& snapshot) {
    uint32_t running = 0;
    uint32_t queued = 0;
    for (const RequestProgress& request : snapshot.requests)
        ++(request.phase == RequestPhase::kQueued ? queued : running);
    return std::format(
        "{:.1f} tok/s, hits {:.0f} %, link {:.0f} MB/s ({:.0f} % busy), compute {:.0f} % busy, "
        "{} running, {} waiting",
        recent.tokens_per_second(), 100 * recent.hit_rate(), recent.link_bytes_per_second() / 1e6,
        100 * recent.link_utilisation(), 100 * recent.compute_utilisation(), running, queued);
}

std::unique_ptr<RunView> make_plain_view(std::FILE* out, std::FILE* progress,
                                         const ViewOptions& options) {
    return std::make_unique<PlainView>(out, progress, options);
}

std::unique_ptr<RunView> make_jsonl_view(std::FILE* out) {
    return std::make_unique<JsonlView>(out);
}

}  // namespace bevy
