// What the user can say on the command line: plain fields with their defaults, and one declaration
// per option that gives parser, help and range. Names as in llama-server wherever it has the same.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "core/config.h"
#include "engine/memory_plan.h"
#include "storage/link_options.h"
#include "text/sampler.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace bevy {

// How a model is opened: everything that outlives a single request.
struct SessionOptions {
    std::string model;
    uint32_t parallel = 4;
    uint32_t context = 0;  // tokens of all requests together; 0: chosen from the model
    uint32_t threads = 0;  // 0: one per core
    std::string cache_type_k = "f16";
    std::string cache_type_v = "f16";
    uint32_t batch = 2048;
    uint32_t ubatch = 512;
    uint64_t memory_bytes = 0;  // 0: what the machine leaves
    CacheSize expert_cache;
    std::string policy{kDefaultPolicy};
    std::string eviction = "reuse";
    std::string read_order = "lag";
    uint32_t lookahead = 1;       // layers that a prefetching policy guesses ahead
    uint32_t prefetch_reads = 2;  // reads of guesses in flight at once
    LinkOptions link;
    std::string trace;          // path; empty: none
    std::string record_routes;  // path; empty: none
};

struct GenerationOptions {
    std::vector<std::string> prompts;
    std::string prompts_file;  // "-": standard input; empty: none
    int32_t predict = 256;     // tokens per request; -1: until the context is full
    bool chat = false;
    std::string system;
    std::vector<std::string> stop;
};

struct OutputOptions {
    bool jsonl = false;
    bool verbose = false;
    bool quiet = false;
};

struct RunOptions {
    SessionOptions session;
    GenerationOptions generation;
    SamplingParams sampling;
    OutputOptions output;
};

struct InspectOptions {
    SessionOptions session;
    bool memory_only = false;
    bool json = false;
    bool no_probe = false;
};

// Declare the options of one command; parsing fills the struct, which must outlive `app`.
void declare_run_options(CLI::App& app, RunOptions& options);
void declare_inspect_options(CLI::App& app, InspectOptions& options);

// The arguments with llama-server's short names of two and three letters (-np, -ctk, -ctv, -ub,
// -to) in their long form, because CLI11 knows only one letter behind one dash. Arguments behind
// "--" stay.
std::vector<std::string> expand_short_names(int argc, const char* const* argv);

}  // namespace bevy
