// What the core itself costs: time per decision, with many requests and many experts, in a world
// where reads and steps take no time at all.
//
//   bevy_core_cost [policy]
//
// "per layer" is what a request costs the core for one layer of one token: its demands, reads,
// evictions and its part of the steps. A step's own time, on the machine that runs the model, is
// what it has to be compared with; the growth with the number of requests must stay below n log n.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/prng.h"
#include "core/core.h"
#include "core/eviction/eviction.h"

namespace bevy {
namespace {

using Clock = std::chrono::steady_clock;

struct Size {
    uint32_t requests;
    uint32_t layers;
    uint32_t experts;  // per layer
    uint32_t top_k;
    uint32_t slots;
};

// One that chooses at random from a few favourites of each request: three of four experts are in
// memory.
class Router {
public:
    Router(const Size& size) : size_(size) {}

    std::vector<ExpertDemand> route(uint32_t request, uint32_t layer) {
        const uint32_t favourites = std::min(size_.experts, 4 * size_.top_k);
        std::vector<ExpertDemand> route;
        while (route.size() < size_.top_k) {
            const bool any = prng_.chance(1, 8);
            const auto pick = static_cast<uint32_t>(prng_.below(any ? size_.experts : favourites));
            const ExpertIndex expert((any ? pick : pick + 7 * request + 13 * layer) %
                                     size_.experts);
            if (std::ranges::none_of(route, [&](const auto& d) { return d.expert == expert; }))
                route.push_back({expert, 1});
        }
        return route;
    }

private:
    Size size_;
    Prng prng_{1};
};

struct Cost {
    double step_us = 0;
    double layer_us = 0;  // per request
    double group = 0;
    double hits = 0;
};

class World {
public:
    World(const Size& size, const char* policy) : size_(size), router_(size) {
        CoreConfig config;
        config.moe_layers = size.layers;
        config.experts_per_layer = size.experts;
        config.experts_used = size.top_k;
        config.slots = size.slots;
        config.sequences = size.requests;
        config.queue_max = size.requests;
        config.reads_inflight_max = 8;
        config.prefill_sequences = 1;
        config.expert_bytes = 13'000'000;
        config.dense_bytes.assign(size.layers + 1, 30'000'000);
        config.policy = policy;
        auto core = Core::create(config);
        if (!core) {
            std::fprintf(stderr, "%s\n", core.error().text().c_str());
            std::exit(1);
        }
        core_ = std::move(*core);
        of_seq_.resize(size.requests);
        for (uint32_t i = 0; i < size.requests; i++)
            core_->handle(RequestArrived{RequestId(i), 1}, now_);
    }

    Cost run(double seconds) {
        // The cache must be full, and some of what it held have been replaced.
        while (core_->stats().evictions < size_.slots / 4)
            turn();
        return pass(seconds);
    }

private:
    Cost pass(double seconds) {
        const CoreStats before = core_->stats();
        advanced_ = 0;
        core_time_ = {};
        const auto begin = Clock::now();
        while (std::chrono::duration<double>(Clock::now() - begin).count() < seconds)
            turn();
        const CoreStats& stats = core_->stats();
        const double us = std::chrono::duration<double, std::micro>(core_time_).count();
        const double steps = static_cast<double>(stats.steps - before.steps);
        const double hits = static_cast<double>(stats.expert_hits - before.expert_hits);
        const double misses = static_cast<double>(stats.expert_misses - before.expert_misses);
        const double advanced = static_cast<double>(std::max<uint64_t>(advanced_, 1));
        return {us / steps, us / advanced, advanced / steps, hits / (hits + misses)};
    }

    template <class Work>
    void timed(Work work) {
        const auto begin = Clock::now();
        work();
        core_time_ += Clock::now() - begin;
    }

    void turn() {
        timed([&] {
            while (auto action = core_->next(now_)) {
                if (auto* admit = std::get_if<AdmitRequest>(&*action))
                    of_seq_[admit->seq.value] = admit->request;
                else if (auto* read = std::get_if<StartRead>(&*action))
                    reads_.push_back(read->ticket);
                else if (auto* step = std::get_if<StartStep>(&*action))
                    step_ = std::move(*step);
            }
        });
        now_ = now_ + microseconds(10);
        if (!reads_.empty()) {
            const Ticket ticket = reads_.front();
            reads_.pop_front();
            timed([&] { core_->handle(ReadDone{ticket, true, microseconds(100)}, now_); });
        }
        if (step_)
            end_step();
    }

    void end_step() {
        const StartStep step = *std::exchange(step_, std::nullopt);
        std::vector<std::vector<ExpertDemand>> routes;
        std::vector<SequenceAdvanced> results;
        routes.reserve(step.advancing.size());
        for (const SeqIndex seq : step.advancing) {
            routes.push_back(step.stage < size_.layers ? router_.route(seq.value, step.stage)
                                                       : std::vector<ExpertDemand>());
            results.push_back({seq, routes.back()});
        }
        advanced_ += results.size();
        timed([&] {
            core_->handle(StepDone{results, microseconds(100)}, now_);
            if (step.stage < size_.layers)
                return;
            for (const SeqIndex seq : step.advancing)
                core_->handle(TokenSampled{of_seq_[seq.value], false}, now_);
        });
    }

    Size size_;
    Router router_;
    std::unique_ptr<Core> core_;
    Instant now_{1};
    std::deque<Ticket> reads_;
    std::optional<StartStep> step_;
    std::vector<RequestId> of_seq_;
    uint64_t advanced_ = 0;
    Clock::duration core_time_{};
};

int measure(const char* policy) {
    constexpr Size kSizes[] = {
        {8, 24, 32, 4, 384},          {16, 24, 32, 4, 384},        {32, 24, 32, 4, 384},
        {32, 100, 1000, 8, 50'000},   {256, 100, 1000, 8, 50'000}, {1024, 100, 1000, 8, 50'000},
        {4096, 100, 1000, 8, 50'000},
    };
    std::printf("policy %s\n", policy);
    std::puts(
        "| requests | experts | slots | us per step | requests per step | us per layer | hits |");
    std::puts("|---:|---:|---:|---:|---:|---:|---:|");
    for (const Size& size : kSizes) {
        const Cost cost = World(size, policy).run(3);
        std::printf("| %u | %u | %u | %.1f | %.1f | %.2f | %.2f |\n", size.requests,
                    size.layers * size.experts, size.slots, cost.step_us, cost.group, cost.layer_us,
                    cost.hits);
        std::fflush(stdout);
    }
    return 0;
}

}  // namespace
}  // namespace bevy

int main(int argc, char** argv) {
    return bevy::measure(argc > 1 ? argv[1] : "bevy");
}
