// How a run is shown while it goes on. One view per kind of output; the run command does not know
// which. All functions: the command's thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/request_sink.h"
#include "engine/stats.h"

namespace bevy {

// A request as the run command keeps it.
struct RunRequest {
    uint32_t index = 0;  // from 1, in the order of the prompts
    std::string prompt;  // as the user gave it
    uint32_t tokens_prompt = 0;
    std::unique_ptr<RequestSink> sink;  // null: not submitted
    std::optional<RequestId> id;
    std::optional<Error> refused;  // never ran
    bool reported = false;
};

// What finished() and reports need, for requests that ran and for those that did not.
RequestOutcome outcome_of(const RunRequest& request);
// "stop", "length", "cancelled", "error".
std::string finish_reason_of(const RequestOutcome& outcome);

class RunView {
public:
    virtual ~RunView() = default;
    // The state now; called often.
    virtual void update(const std::vector<RunRequest>& requests,
                        const EngineSnapshot& snapshot) = 0;
    // Once per request, in the order in which they end.
    virtual void finished(const RunRequest& request) = 0;
    // No more calls follow; the terminal is as it was.
    virtual void close() = 0;
    // False: nobody can read the output any more (a closed pipe, a full disk).
    virtual bool output_works() const = 0;
};

struct ViewOptions {
    bool quiet = false;
    bool colour = false;
};

// Live blocks on a terminal.
std::unique_ptr<RunView> make_live_view(std::FILE* out, const ViewOptions& options);
// Whole texts, one after the other.
std::unique_ptr<RunView> make_plain_view(std::FILE* out, std::FILE* progress,
                                         const ViewOptions& options);
// One JSON object per line and request.
std::unique_ptr<RunView> make_jsonl_view(std::FILE* out);

// The line below the live blocks: "12.3 tok/s  hits 81 %  link 1.2 GB/s 60 %  compute 70 %  ...".
std::string status_line(const EngineStats& recent, const EngineSnapshot& snapshot);
// "prefill 40 %", "waiting for 3 experts" ...
std::string state_text(const RequestProgress& progress);

}  // namespace bevy
