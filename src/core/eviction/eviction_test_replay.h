// Replays recorded routes against an expert cache, for tests and bench/eviction_replay.cc.
//
// Nothing takes time here: a step reveals routes, everything that is missing is read, and an expert
// that the step or a waiting request still needs is not evicted. What remains is what an eviction
// policy decides. Requests of the trace run in its order, so many at once; one that ends is
// replaced by the next. When who reveals what does not depend on the policy, so `BeladyEviction`
// can know the future and is a lower bound for the misses of every policy.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "base/assert.h"
#include "base/prng.h"
#include "base/route_trace.h"
#include "core/eviction/eviction.h"
#include "core/expert_cache.h"

namespace bevy {

struct ReplayOptions {
    uint32_t requests = 1;  // at once
    // In lockstep, a step is one layer of all requests; interleaved, of one drawn at random, while
    // the others wait with their experts pinned.
    bool interleaved = false;
    uint32_t tokens_skipped = 0;  // at the start of each request of the trace
    uint32_t measured_from = 0;   // requests of the trace before this one only warm up
    bool drains = true;           // false: ends as soon as there are too few requests
    uint64_t seed = 1;            // of the interleaving
};

// One request's route at one layer.
struct ReplayReveal {
    SeqIndex seq;
    LayerIndex layer;
    std::span<const uint8_t> route;
};

class ReplayListener {
public:
    virtual ~ReplayListener() = default;
    virtual void on_start(SeqIndex) {}
    virtual void on_end(SeqIndex) {}
    virtual void on_step(std::span<const ReplayReveal> reveals, bool measured) = 0;
};

class RouteReplay {
public:
    RouteReplay(const RouteTrace& trace, const ReplayOptions& options)
        : trace_(trace), options_(options), prng_(options.seed), places_(options.requests) {}

    // Once.
    void run(ReplayListener& listener) {
        for (uint32_t i = 0; i < options_.requests; i++)
            start(i, listener);
        std::vector<uint32_t> running(options_.requests);
        std::iota(running.begin(), running.end(), 0u);
        std::vector<uint32_t> stepping;
        std::vector<ReplayReveal> reveals;
        while (!running.empty()) {
            stepping = running;
            if (options_.interleaved)
                stepping = {running[prng_.below(running.size())]};
            reveals.clear();
            for (uint32_t i : stepping) {
                if (ended(i) && !replace(i, listener)) {
                    std::erase(running, i);
                    if (!options_.drains)
                        return;
                    continue;
                }
                reveals.push_back(reveal(i));
            }
            if (!reveals.empty())
                listener.on_step(reveals, next_ > options_.measured_from);
        }
    }

private:
    struct Place {
        uint32_t request = 0;
        uint32_t token = 0;
        uint32_t layer = 0;
    };

    bool ended(uint32_t i) const {
        return places_[i].token >= trace_.requests[places_[i].request].tokens;
    }
    void start(uint32_t i, ReplayListener& listener) {
        BEVY_ASSERT(next_ < trace_.requests.size());
        BEVY_ASSERT(trace_.requests[next_].tokens > options_.tokens_skipped);
        places_[i] = {.request = next_++, .token = options_.tokens_skipped};
        listener.on_start(SeqIndex(i));
    }
    bool replace(uint32_t i, ReplayListener& listener) {
        listener.on_end(SeqIndex(i));
        if (next_ == trace_.requests.size())
            return false;
        start(i, listener);
        return true;
    }
    ReplayReveal reveal(uint32_t i) {
        Place& place = places_[i];
        ReplayReveal revealed{SeqIndex(i), LayerIndex(place.layer),
                              trace_.route(place.request, place.token, place.layer)};
        if (++place.layer == trace_.layers) {
            place.layer = 0;
            place.token++;
        }
        return revealed;
    }

    const RouteTrace& trace_;
    ReplayOptions options_;
    Prng prng_;
    std::vector<Place> places_;
    uint32_t next_ = 0;  // request of the trace
};

// An expert cache that demands what is replayed, and counts.
class ReplayCache final : public ReplayListener {
public:
    // REQUIRES: slots for the experts of one step and of all waiting requests.
    ReplayCache(const RouteTrace& trace, uint32_t sequences, uint32_t slots, EvictionPolicy& policy)
        : trace_(trace),
          policy_(policy),
          cache_(trace.layers * trace.experts, slots),
          held_(sequences) {}

    void on_start(SeqIndex seq) override {
        running_++;
        policy_.on_start(seq);
    }
    void on_end(SeqIndex seq) override {
        running_--;
        release(seq);
        policy_.on_end(seq);
    }
    void on_step(std::span<const ReplayReveal> reveals, bool measured) override {
        for (const ReplayReveal& r : reveals)
            release(r.seq);
        for (const ReplayReveal& r : reveals)
            demand(r);
        for (const ReplayReveal& r : reveals) {
            for (ExpertId expert : held_[r.seq.value])
                misses_ += load(expert) && measured;
        }
        reveals_ += measured ? reveals.size() : 0;
    }

    uint64_t misses() const { return misses_; }  // distinct experts of a step
    uint64_t tokens() const { return reveals_ / trace_.layers; }

private:
    void release(SeqIndex seq) {
        for (ExpertId expert : held_[seq.value])
            cache_.release(expert);
        held_[seq.value].clear();
    }
    void demand(const ReplayReveal& r) {
        used_.clear();
        for (uint8_t expert : r.route) {
            used_.push_back({ExpertIndex(expert), 1});
            ExpertId id(r.layer.value * trace_.experts + expert);
            held_[r.seq.value].push_back(id);
            cache_.demand(id);
        }
        policy_.on_reveal({.seq = r.seq, .layer = r.layer, .used = used_, .running = running_});
    }
    bool load(ExpertId expert) {
        if (cache_.residency(expert) != Residency::kAbsent)
            return false;
        BEVY_ASSERT(cache_.has_room());
        std::optional<ExpertId> evicted;
        cache_.begin_read(expert, policy_, evicted);
        cache_.read_arrived(expert);
        policy_.on_loaded(expert);
        return true;
    }

    const RouteTrace& trace_;
    EvictionPolicy& policy_;
    ExpertCache cache_;
    std::vector<std::vector<ExpertId>> held_;  // per sequence, since its last step
    std::vector<ExpertDemand> used_;
    uint32_t running_ = 0;
    uint64_t misses_ = 0;
    uint64_t reveals_ = 0;
};

// Evicts what is used again last (Belady 1966), which no policy can do without knowing the future.
class BeladyEviction final : public EvictionPolicy {
public:
    BeladyEviction(const RouteTrace& trace, const ReplayOptions& options)
        : experts_(trace.experts), uses_(size_t{trace.layers} * trace.experts) {
        struct Recorder final : ReplayListener {
            explicit Recorder(BeladyEviction& b) : belady(b) {}
            void on_step(std::span<const ReplayReveal> reveals, bool) override {
                for (const ReplayReveal& r : reveals) {
                    number++;
                    for (uint8_t expert : r.route)
                        belady.uses_[r.layer.value * belady.experts_ + expert].push_back(number);
                }
            }
            BeladyEviction& belady;
            uint32_t number = 0;
        } recorder(*this);
        RouteReplay(trace, options).run(recorder);
        next_.resize(uses_.size());
    }

    void on_reveal(const Reveal& reveal) override {
        number_++;
        for (const ExpertDemand& demand : reveal.used) {
            size_t i = reveal.layer.value * experts_ + demand.expert.value;
            BEVY_ASSERT(uses_[i][next_[i]] == number_);
            next_[i]++;
        }
    }
    ExpertId choose(const EvictionCandidates& candidates) override {
        auto next_use = [&](ExpertId expert) {
            const std::vector<uint32_t>& uses = uses_[expert.value];
            uint32_t next = next_[expert.value];
            return next < uses.size() ? uses[next] : ~uint32_t{0};
        };
        return *std::ranges::max_element(candidates.experts(), {}, next_use);
    }

private:
    uint32_t experts_;
    std::vector<std::vector<uint32_t>> uses_;  // per expert: the numbers of the reveals that use it
    std::vector<uint32_t> next_;               // per expert: index of its next use
    uint32_t number_ = 0;
};

}  // namespace bevy
