#include "engine/stats.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>

#include "engine/generation.h"

namespace bevy {

namespace {

double ratio(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

template <class... Args>
std::string format(const char* pattern, Args... args) {
    char text[128];
    std::snprintf(text, sizeof text, pattern, args...);
    return text;
}

std::string count(uint64_t n) {
    return std::to_string(n);
}

std::string percent(double share) {
    return format("%.1f %%", share * 100);
}

std::string seconds(Duration d) {
    return format("%.3f s", d.seconds());
}

// "1:12 2:5 8:40": how often each size came up.
std::string histogram(const std::vector<uint64_t>& sizes) {
    std::string text;
    for (size_t size = 1; size < sizes.size(); size++) {
        if (sizes[size] == 0)
            continue;
        if (!text.empty())
            text += ' ';
        text += std::to_string(size) + ':' + std::to_string(sizes[size]);
    }
    return text.empty() ? "-" : text;
}

// Every counter of the core, once, so that differences can't forget one.
template <class Visit>
void for_each_counter(CoreStats& s, const CoreStats& t, Visit visit) {
    visit(s.requests_arrived, t.requests_arrived);
    visit(s.requests_finished, t.requests_finished);
    visit(s.requests_cancelled, t.requests_cancelled);
    visit(s.requests_failed, t.requests_failed);
    visit(s.passes, t.passes);
    visit(s.passes_decode, t.passes_decode);
    visit(s.expert_hits, t.expert_hits);
    visit(s.expert_joins, t.expert_joins);
    visit(s.expert_misses, t.expert_misses);
    visit(s.expert_prefetched, t.expert_prefetched);
    visit(s.reads_started, t.reads_started);
    visit(s.reads_done, t.reads_done);
    visit(s.reads_failed, t.reads_failed);
    visit(s.reads_cancelled, t.reads_cancelled);
    visit(s.evictions, t.evictions);
    visit(s.guesses, t.guesses);
    visit(s.guesses_right, t.guesses_right);
    visit(s.guesses_absent, t.guesses_absent);
    visit(s.guesses_absent_right, t.guesses_absent_right);
    visit(s.prefetches, t.prefetches);
    visit(s.prefetches_useful, t.prefetches_useful);
    visit(s.steps, t.steps);
    visit(s.step_sequences, t.step_sequences);
    visit(s.step_experts, t.step_experts);
    visit(s.step_expert_uses, t.step_expert_uses);
    visit(s.idle_steps, t.idle_steps);
    visit(s.compute_busy.ns, t.compute_busy.ns);
    visit(s.link_busy.ns, t.link_busy.ns);
    visit(s.stall.ns, t.stall.ns);
}

}  // namespace

double EngineStats::compute_utilisation() const {
    return ratio(core.compute_busy.seconds(), active.seconds());
}

double EngineStats::link_utilisation() const {
    return ratio(core.link_busy.seconds(), active.seconds());
}

double EngineStats::stall_share() const {
    return ratio(core.stall.seconds(), active.seconds());
}

double EngineStats::hit_rate() const {
    const uint64_t demands =
        core.expert_hits + core.expert_joins + core.expert_misses + core.expert_prefetched;
    return ratio(static_cast<double>(core.expert_hits), static_cast<double>(demands));
}

double EngineStats::group_size_mean() const {
    return ratio(static_cast<double>(core.step_sequences),
                 static_cast<double>(core.steps - core.idle_steps));
}

double EngineStats::tokens_per_second() const {
    return ratio(static_cast<double>(tokens_generated), active.seconds());
}

double EngineStats::link_bytes_per_second() const {
    return ratio(static_cast<double>(link_bytes), core.link_busy.seconds());
}

double EngineStats::link_bytes_per_token() const {
    return ratio(static_cast<double>(link_bytes),
                 static_cast<double>(tokens_prompt + tokens_generated));
}

EngineStats EngineStats::since(const EngineStats& earlier) const {
    EngineStats rest = *this;
    for_each_counter(rest.core, earlier.core, [](auto& now, auto then) { now -= then; });
    rest.link_bytes -= earlier.link_bytes;
    rest.tokens_prompt -= earlier.tokens_prompt;
    rest.tokens_reused -= earlier.tokens_reused;
    rest.tokens_generated -= earlier.tokens_generated;
    rest.steps_failed -= earlier.steps_failed;
    rest.wall = wall - earlier.wall;
    rest.active = active - earlier.active;
    rest.sampling = sampling - earlier.sampling;
    const size_t sizes = std::min(rest.group_sizes.size(), earlier.group_sizes.size());
    for (size_t size = 0; size < sizes; size++)
        rest.group_sizes[size] -= earlier.group_sizes[size];
    return rest;
}

double EngineStats::prefetch_precision() const {
    return ratio(static_cast<double>(core.prefetches_useful), static_cast<double>(core.prefetches));
}

double EngineStats::prefetch_recall() const {
    return ratio(static_cast<double>(core.prefetches_useful),
                 static_cast<double>(core.prefetches_useful + core.expert_misses));
}

std::vector<StatRow> stat_rows(const EngineStats& s) {
    const CoreStats& c = s.core;
    std::vector<StatRow> rows = {
        {"requests arrived", count(c.requests_arrived)},
        {"requests finished", count(c.requests_finished)},
        {"requests cancelled", count(c.requests_cancelled)},
        {"requests failed", count(c.requests_failed)},
        {"wall time", seconds(s.wall)},
        {"active time", seconds(s.active)},
        {"prompt tokens", count(s.tokens_prompt)},
        {"prompt tokens reused", count(s.tokens_reused)},
        {"generated tokens", count(s.tokens_generated)},
        {"generated tokens per second", format("%.2f", s.tokens_per_second())},
        {"passes", count(c.passes)},
        {"passes of one generated token", count(c.passes_decode)},
        {"expert demands: hits", count(c.expert_hits)},
        {"expert demands: joined a read", count(c.expert_joins)},
        {"expert demands: misses", count(c.expert_misses)},
        {"hit rate", percent(s.hit_rate())},
        {"reads started", count(c.reads_started)},
        {"reads done", count(c.reads_done)},
        {"reads failed", count(c.reads_failed)},
        {"reads cancelled", count(c.reads_cancelled)},
        {"evictions", count(c.evictions)},
        {"read from the model", format_bytes(s.link_bytes)},
        {"read per token", format_bytes(static_cast<uint64_t>(s.link_bytes_per_token()))},
        {"link busy", percent(s.link_utilisation())},
        {"link speed while busy",
         format_bytes(static_cast<uint64_t>(s.link_bytes_per_second())) + "/s"},
        {"steps", count(c.steps)},
        {"steps that only computed experts ahead", count(c.idle_steps)},
        {"steps failed", count(s.steps_failed)},
        {"experts per step",
         format("%.2f", ratio(static_cast<double>(c.step_experts), static_cast<double>(c.steps)))},
        {"requests per expert computed",
         format("%.2f", ratio(static_cast<double>(c.step_expert_uses),
                              static_cast<double>(c.step_experts)))},
        {"group size, mean", format("%.2f", s.group_size_mean())},
        {"group sizes (size:steps)", histogram(s.group_sizes)},
        {"compute busy", percent(s.compute_utilisation())},
        {"stalled for experts", percent(s.stall_share())},
        {"sampling", seconds(s.sampling)},
    };
    if (c.prefetches > 0) {
        rows.push_back({"expert demands: prefetched", count(c.expert_prefetched)});
        rows.push_back({"experts guessed", count(c.guesses)});
        rows.push_back(
            {"guesses that were right",
             percent(ratio(static_cast<double>(c.guesses_right), static_cast<double>(c.guesses)))});
        rows.push_back({"guesses of missing experts that were right",
                        percent(ratio(static_cast<double>(c.guesses_absent_right),
                                      static_cast<double>(c.guesses_absent)))});
        rows.push_back({"prefetches", count(c.prefetches)});
        rows.push_back({"prefetches in time and needed", percent(s.prefetch_precision())});
        rows.push_back({"missing experts that were prefetched", percent(s.prefetch_recall())});
    }
    return rows;
}

const char* request_phase_name(RequestPhase phase) {
    switch (phase) {
        case RequestPhase::kQueued:
            return "queued";
        case RequestPhase::kWaiting:
            return "waiting";
        case RequestPhase::kReady:
            return "ready";
        case RequestPhase::kComputing:
            return "computing";
    }
    return "?";
}

const char* finish_reason_name(FinishReason reason) {
    switch (reason) {
        case FinishReason::kStop:
            return "stop";
        case FinishReason::kLength:
            return "length";
        case FinishReason::kCancelled:
            return "cancelled";
        case FinishReason::kError:
            return "error";
    }
    return "?";
}

}  // namespace bevy
