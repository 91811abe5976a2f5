// How often each eviction policy misses on recorded routes, and how long it thinks.
//
//   bevy_eviction_replay FILE.rtrace [name=value ...]
//
// Misses per token: distinct experts of a step that had to be read. Half of the requests warm up,
// the others are measured. The last row is Belady's, which knows the future. Record routes with
// `bevy run --record-routes`, from many different prompts.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/registry.h"
#include "base/route_trace.h"
#include "core/eviction/eviction_test_replay.h"
#include "core/eviction/registry.h"

namespace bevy {
namespace {

struct BenchOptions {
    std::vector<std::string> policies;  // empty: all
    std::vector<std::string> requests = {"1", "4", "8", "16"};
    std::vector<std::string> slots = {"12.5", "25", "50", "75"};  // percent of all experts
    ReplayOptions replay{.drains = false};
    bool times = false;
};

[[noreturn]] void give_up(const std::string& text) {
    std::fprintf(stderr, "%s\n", text.c_str());
    std::exit(1);
}

void print_usage() {
    std::puts(
        "usage: bevy_eviction_replay FILE.rtrace [name=value ...]\n"
        "  policies=NAME,..  requests=1,4,8,16  slots=12.5,25,50,75 (percent of all experts)\n"
        "  order=lockstep|interleaved  skip=0 (tokens at the start of a request)  seed=1\n"
        "  times=1 (measure microseconds per reveal and per choice)");
}

std::vector<std::string> split(std::string_view list) {
    std::vector<std::string> words;
    while (!list.empty()) {
        size_t comma = std::min(list.find(','), list.size());
        words.emplace_back(list.substr(0, comma));
        list.remove_prefix(std::min(comma + 1, list.size()));
    }
    return words;
}

void set_option(BenchOptions& options, std::string_view name, const std::string& value) {
    auto number = [&] { return static_cast<uint32_t>(std::strtoul(value.c_str(), nullptr, 10)); };
    if (name == "policies") {
        options.policies = split(value);
    } else if (name == "requests") {
        options.requests = split(value);
    } else if (name == "slots") {
        options.slots = split(value);
    } else if (name == "order" && (value == "lockstep" || value == "interleaved")) {
        options.replay.interleaved = value == "interleaved";
    } else if (name == "skip") {
        options.replay.tokens_skipped = number();
    } else if (name == "seed") {
        options.replay.seed = number();
    } else if (name == "times") {
        options.times = number() != 0;
    } else {
        print_usage();
        std::exit(2);
    }
}

// Passes everything on, and takes the time.
class Stopwatch final : public EvictionPolicy {
public:
    explicit Stopwatch(EvictionPolicy& policy) : policy_(policy) {}

    void on_start(SeqIndex seq) override { policy_.on_start(seq); }
    void on_end(SeqIndex seq) override { policy_.on_end(seq); }
    void on_loaded(ExpertId expert) override { policy_.on_loaded(expert); }
    void on_evicted(ExpertId expert) override { policy_.on_evicted(expert); }
    void on_reveal(const Reveal& reveal) override {
        auto begin = Clock::now();
        policy_.on_reveal(reveal);
        reveal_time_ += Clock::now() - begin;
        reveals_++;
    }
    ExpertId choose(const EvictionCandidates& candidates) override {
        auto begin = Clock::now();
        ExpertId chosen = policy_.choose(candidates);
        choice_time_ += Clock::now() - begin;
        choices_++;
        return chosen;
    }
    std::string times() const {
        return microseconds(reveal_time_, reveals_) + "/" + microseconds(choice_time_, choices_);
    }

private:
    using Clock = std::chrono::steady_clock;

    static std::string microseconds(Clock::duration time, uint64_t count) {
        char text[32];
        std::snprintf(text, sizeof text, "%.2f",
                      std::chrono::duration<double, std::micro>(time).count() /
                          static_cast<double>(std::max<uint64_t>(count, 1)));
        return text;
    }

    EvictionPolicy& policy_;
    Clock::duration reveal_time_{};
    Clock::duration choice_time_{};
    uint64_t reveals_ = 0;
    uint64_t choices_ = 0;
};

struct Point {
    ReplayOptions replay;
    uint32_t slots = 0;
};

std::string replayed(const RouteTrace& trace, const Point& point, EvictionPolicy& policy,
                     bool times) {
    Stopwatch watch(policy);
    ReplayCache cache(trace, point.replay.requests, point.slots,
                      times ? static_cast<EvictionPolicy&>(watch) : policy);
    RouteReplay(trace, point.replay).run(cache);
    if (times)
        return watch.times();
    char text[32];
    std::snprintf(text, sizeof text, "%.3f",
                  static_cast<double>(cache.misses()) / static_cast<double>(cache.tokens()));
    return text;
}

void print_row(std::string_view name, const std::vector<std::string>& cells) {
    std::printf("| %-12s", std::string(name).c_str());
    for (const std::string& cell : cells)
        std::printf(" | %9s", cell.c_str());
    std::puts(" |");
    std::fflush(stdout);
}

int run(const BenchOptions& options, const RouteTrace& trace) {
    std::vector<Point> points;
    std::vector<std::string> heads;
    for (const std::string& requests : options.requests) {
        for (const std::string& percent : options.slots) {
            Point point{.replay = options.replay};
            point.replay.requests =
                static_cast<uint32_t>(std::strtoul(requests.c_str(), nullptr, 10));
            point.replay.measured_from = static_cast<uint32_t>(trace.requests.size() / 2);
            point.slots = static_cast<uint32_t>(std::strtod(percent.c_str(), nullptr) / 100 *
                                                trace.layers * trace.experts);
            if (point.replay.requests == 0 || point.replay.requests > trace.requests.size() / 2)
                give_up(requests + " requests at once: the trace has enough for 1 to " +
                        std::to_string(trace.requests.size() / 2));
            if (point.slots < point.replay.requests * trace.top_k)
                give_up(percent + " % of the experts are too few slots for a step of " + requests +
                        " requests");
            points.push_back(point);
            heads.push_back("N" + requests + " " + percent + "%");
        }
    }
    print_row(options.times ? "us" : "misses/token", heads);
    print_row("---", std::vector<std::string>(heads.size(), "---"));
    for (const EvictionRow& row : eviction_policies()) {
        if (!options.policies.empty() &&
            std::ranges::find(options.policies, row.name) == options.policies.end())
            continue;
        std::vector<std::string> cells;
        for (const Point& point : points) {
            auto policy = row.make({.layers = trace.layers,
                                    .experts_per_layer = trace.experts,
                                    .experts_used = trace.top_k,
                                    .sequences = point.replay.requests,
                                    .slots = point.slots});
            cells.push_back(replayed(trace, point, *policy, options.times));
        }
        print_row(row.name, cells);
    }
    std::vector<std::string> bounds;
    for (const Point& point : points) {
        BeladyEviction belady(trace, point.replay);
        bounds.push_back(replayed(trace, point, belady, options.times));
    }
    print_row("Belady", bounds);
    return 0;
}

}  // namespace
}  // namespace bevy

int main(int argc, char** argv) {
    if (argc < 2) {
        bevy::print_usage();
        return 2;
    }
    bevy::BenchOptions options;
    for (int i = 2; i < argc; i++) {
        const std::string_view argument = argv[i];
        const size_t equals = std::min(argument.find('='), argument.size());
        bevy::set_option(options, argument.substr(0, equals),
                         std::string(argument.substr(std::min(equals + 1, argument.size()))));
    }
    for (const std::string& name : options.policies) {
        auto row = bevy::registry_find(bevy::eviction_policies(), "eviction policy", name);
        if (!row)
            bevy::give_up(row.error().text());
    }
    auto trace = bevy::read_route_trace(argv[1]);
    if (!trace)
        bevy::give_up(trace.error().text());
    for (const bevy::RouteTrace::Request& request : trace->requests) {
        if (request.tokens <= options.replay.tokens_skipped)
            bevy::give_up("skip= leaves nothing of a request with " +
                          std::to_string(request.tokens) + " tokens");
    }
    return bevy::run(options, *trace);
}
