// The live view: one block per running request at the bottom of the terminal, a status line below,
// finished texts scrolling up above. Redraws in place with plain ANSI sequences.
#include <unistd.h>

#include <algorithm>
#include <format>
#include <map>

#include "cli/interrupt.h"
#include "cli/run_view.h"
#include "cli/terminal.h"

namespace bevy {
namespace {

constexpr Duration kFrame = milliseconds(100);
constexpr Duration kStatusWindow = milliseconds(2000);

class LiveView final : public RunView {
public:
    LiveView(std::FILE* out, const ViewOptions& options) : out_(out), options_(options) {
        write("\x1b[?25l");  // hide the cursor
        set_cursor_hidden(true);
    }
    ~LiveView() override { LiveView::close(); }

    void update(const std::vector<RunRequest>& requests, const EngineSnapshot& snapshot) override {
        if (closed_ || snapshot.stats.wall - drawn_at_ < kFrame)
            return;
        drawn_at_ = snapshot.stats.wall;
        if (snapshot.stats.wall - window_start_.wall > kStatusWindow) {
            window_start_ = window_next_;
            window_next_ = snapshot.stats;
        }
        erase();
        draw(requests, snapshot);
        flush();
    }

    void finished(const RunRequest& request) override {
        erase();
        const RequestOutcome outcome = outcome_of(request);
        write(bold(std::format("[{}] {}", request.index, one_line(request.prompt))) + "\n");
        write(terminal_safe(outcome.text));
        if (outcome.text.empty() || outcome.text.back() != '\n')
            write("\n");
        if (outcome.error)
            write(red("error: " + terminal_safe(outcome.error->text())) + "\n");
        else if (outcome.reason == FinishReason::kCancelled)
            write(dim("[cancelled]") + "\n");
        write("\n");
        flush();
    }

    void close() override {
        if (closed_)
            return;
        closed_ = true;
        erase();
        write("\x1b[?25h");
        flush();
        set_cursor_hidden(false);
    }

    bool output_works() const override { return std::ferror(out_) == 0; }

private:
    void draw(const std::vector<RunRequest>& requests, const EngineSnapshot& snapshot) {
        const TerminalSize size = terminal_size(fileno(out_));
        const uint32_t columns = std::max(size.columns, 2u) - 1;  // the last one would wrap
        const uint32_t rows = std::max(size.rows, 3u) - 2;        // the status line, and one above
        std::map<RequestId, const RequestProgress*> progress;
        for (const RequestProgress& request : snapshot.requests)
            progress[request.request] = &request;
        std::vector<const RunRequest*> running;
        for (const RunRequest& request : requests) {
            if (request.id && !request.reported && progress.contains(*request.id) &&
                progress[*request.id]->phase != RequestPhase::kQueued)
                running.push_back(&request);
        }
        const auto count = static_cast<uint32_t>(running.size());
        const uint32_t shown = std::min(count, rows / 2);
        const uint32_t text_lines =
            shown == 0 ? 0 : std::clamp(rows / std::max(shown, 1u) - 1, 1u, 3u);
        for (uint32_t i = 0; i < shown; ++i)
            draw_block(*running[i], *progress[*running[i]->id], columns, text_lines);
        EngineStats recent = snapshot.stats.since(window_start_);
        std::string status = status_line(recent, snapshot);
        if (shown < count)
            status = std::format("(+{} not shown) ", count - shown) + status;
        line(fit(status, columns), "\x1b[36m");
    }

    void draw_block(const RunRequest& request, const RequestProgress& progress, uint32_t columns,
                    uint32_t text_lines) {
        const std::string state = state_text(progress);
        const uint32_t state_columns = display_width(state) + 2;
        std::string head = std::format("[{}] {}", request.index, one_line(request.prompt));
        if (columns > state_columns + 8)
            head = fit(head, std::min(columns - state_columns, 60u)) + "  " + state;
        else
            head = fit(std::format("[{}] {}", request.index, state), columns);
        line(head, "\x1b[1m");
        const std::string text = terminal_safe(request.sink->outcome().text);
        for (const std::string& text_line : last_lines(text, columns, text_lines))
            line(text_line, "");
    }

    void line(const std::string& text, const char* attribute) {
        drawn_widths_.push_back(display_width(text));
        write(options_.colour && *attribute != '\0' ? attribute + text + "\x1b[0m\n" : text + "\n");
    }

    // Removes what draw() has drawn. A terminal that became narrower has wrapped the lines.
    void erase() {
        if (drawn_widths_.empty())
            return;
        const uint32_t columns = std::max(terminal_size(fileno(out_)).columns, 1u);
        uint32_t rows = 0;
        for (const uint32_t width : drawn_widths_)
            rows += std::max(1u, (width + columns - 1) / columns);
        write(std::format("\r\x1b[{}A\x1b[J", rows));
        drawn_widths_.clear();
    }

    std::string styled(const char* attribute, const std::string& text) const {
        return options_.colour ? attribute + text + "\x1b[0m" : text;
    }
    std::string bold(const std::string& text) const { return styled("\x1b[1m", text); }
    std::string dim(const std::string& text) const { return styled("\x1b[2m", text); }
    std::string red(const std::string& text) const { return styled("\x1b[31m", text); }

    // One write per frame, so that nothing flickers.
    void write(const std::string& text) { frame_ += text; }
    void flush() {
        std::fwrite(frame_.data(), 1, frame_.size(), out_);
        std::fflush(out_);
        frame_.clear();
    }

    std::FILE* out_;
    ViewOptions options_;
    std::string frame_;
    std::vector<uint32_t> drawn_widths_;
    Duration drawn_at_ = {-kFrame.ns};
    EngineStats window_start_;
    EngineStats window_next_;
    bool closed_ = false;
};

}  // namespace

std::unique_ptr<RunView> make_live_view(std::FILE* out, const ViewOptions& options) {
    return std::make_unique<LiveView>(out, options);
}

}  // namespace bevy
