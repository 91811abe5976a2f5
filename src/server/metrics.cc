#include "server/metrics.h"

#include <prometheus/metric_family.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace bevy {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

double number(uint64_t value) {
    return static_cast<double>(value);
}

double ratio(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

class Families {
public:
    void counter(const char* name, const char* help, double value) {
        ClientMetric metric;
        metric.counter.value = value;
        add(name, help, MetricType::Counter).push_back(std::move(metric));
    }
    void gauge(const char* name, const char* help, double value) {
        ClientMetric metric;
        metric.gauge.value = value;
        add(name, help, MetricType::Gauge).push_back(std::move(metric));
    }
    // A gauge with one value for each label.
    void gauges(const char* name, const char* help, const char* label,
                const std::vector<std::pair<std::string, double>>& values) {
        std::vector<ClientMetric>& metrics = add(name, help, MetricType::Gauge);
        for (const auto& [which, value] : values) {
            ClientMetric metric;
            metric.label.push_back({label, which});
            metric.gauge.value = value;
            metrics.push_back(std::move(metric));
        }
    }
    std::string text() const { return prometheus::TextSerializer().Serialize(families_); }

private:
    std::vector<ClientMetric>& add(const char* name, const char* help, MetricType type) {
        MetricFamily& family = families_.emplace_back();
        family.name = name;
        family.help = help;
        family.type = type;
        return family.metric;
    }

    std::vector<MetricFamily> families_;
};

void add_llama(const MetricsInput& input, Families& families) {
    const EngineStats& stats = input.snapshot.stats;
    const Admission::Totals& totals = input.totals;
    const auto running = static_cast<uint32_t>(std::ranges::count_if(
        input.snapshot.requests, [](const RequestProgress& r) { return r.seq.has_value(); }));
    families.counter("llamacpp:prompt_tokens_total", "Prompt tokens processed.",
                     number(stats.tokens_prompt));
    families.counter("llamacpp:prompt_tokens_cached_total",
                     "Prompt tokens that an earlier request had computed.",
                     number(stats.tokens_reused));
    families.counter("llamacpp:prompt_seconds_total",
                     "Time that requests spent in prefill, summed over requests.",
                     totals.prefill.seconds());
    families.counter("llamacpp:tokens_predicted_total", "Tokens generated.",
                     number(stats.tokens_generated));
    families.counter("llamacpp:tokens_predicted_seconds_total",
                     "Time that requests spent in decode, summed over requests.",
                     totals.decode.seconds());
    families.counter("llamacpp:n_decode_total", "Passes begun.", number(stats.core.passes));
    families.counter("llamacpp:n_tokens_max",
                     "Tokens of the longest request so far, prompt and reply together.",
                     totals.sequence_tokens_max);
    families.gauge("llamacpp:prompt_tokens_seconds", "Prompt tokens per second of prefill.",
                   ratio(number(totals.tokens_prompt), totals.prefill.seconds()));
    families.gauge("llamacpp:predicted_tokens_seconds", "Generated tokens per second of decode.",
                   ratio(number(totals.tokens_generated), totals.decode.seconds()));
    families.gauge("llamacpp:requests_processing", "Requests that run.", running);
    families.gauge("llamacpp:requests_deferred", "Requests that wait for a sequence.",
                   input.inside - std::min(input.inside, running));
    families.gauge("llamacpp:n_busy_slots_per_decode", "Requests per step that advanced any.",
                   stats.group_size_mean());
}

void add_experts(const EngineStats& stats, uint32_t expert_slots, Families& families) {
    const CoreStats& core = stats.core;
    families.counter("bevy:expert_hits_total",
                     "Demands whose expert was resident when the router chose it.",
                     number(core.expert_hits));
    families.counter("bevy:expert_joins_total", "Demands whose expert was being read already.",
                     number(core.expert_joins));
    families.counter("bevy:expert_misses_total",
                     "Demands whose expert was neither resident nor being read.",
                     number(core.expert_misses));
    families.counter("bevy:evictions_total", "Experts that gave up their slot.",
                     number(core.evictions));
    families.gauge("bevy:expert_slots", "Experts that fit into the cache.", expert_slots);
    families.counter("bevy:read_bytes_total", "Bytes read from the model's files for experts.",
                     number(stats.link_bytes));
    families.counter("bevy:reads_total", "Reads that ended with the expert resident.",
                     number(core.reads_done));
    families.counter("bevy:reads_failed_total", "Reads that ended with an error.",
                     number(core.reads_failed));
}

void add_schedule(const MetricsInput& input, Families& families) {
    const EngineStats& stats = input.snapshot.stats;
    families.counter("bevy:active_seconds_total",
                     "Time with a request, a step or a read under way.", stats.active.seconds());
    families.counter("bevy:stall_seconds_total",
                     "Time in which nothing was computed because experts were missing.",
                     stats.core.stall.seconds());
    families.counter("bevy:compute_busy_seconds_total", "Time with a step in flight.",
                     stats.core.compute_busy.seconds());
    families.counter("bevy:link_busy_seconds_total", "Time with a read in flight.",
                     stats.core.link_busy.seconds());
    families.gauge("bevy:compute_utilisation", "Part of the active time with a step in flight.",
                   stats.compute_utilisation());
    families.gauge("bevy:link_utilisation", "Part of the active time with a read in flight.",
                   stats.link_utilisation());
    families.counter("bevy:steps_total", "Steps run.", number(stats.core.steps));
    families.counter("bevy:steps_failed_total", "Steps that the backend gave up.",
                     number(stats.steps_failed));
    families.gauge("bevy:group_size", "Mean number of requests per step that advanced any.",
                   stats.group_size_mean());
    families.counter("bevy:requests_finished_total", "Requests that ended by themselves.",
                     number(stats.core.requests_finished));
    families.counter("bevy:requests_cancelled_total", "Requests that their client gave up.",
                     number(stats.core.requests_cancelled));
    families.counter("bevy:requests_failed_total", "Requests that failed.",
                     number(stats.core.requests_failed));
}

void add_sequences(const MetricsInput& input, Families& families) {
    double waiting = 0;
    double ready = 0;
    double computing = 0;
    double prefill = 0;
    for (const RequestProgress& request : input.snapshot.requests) {
        if (!request.seq)
            continue;
        waiting += request.phase == RequestPhase::kWaiting;
        ready += request.phase == RequestPhase::kReady;
        computing += request.phase == RequestPhase::kComputing;
        prefill += request.prefill;
    }
    const double busy = waiting + ready + computing;
    families.gauges("bevy:sequences", "Places for running requests, by what is going on there.",
                    "state",
                    {{"idle", std::max(0.0, input.parallel - busy)},
                     {"waiting", waiting},
                     {"ready", ready},
                     {"computing", computing}});
    families.gauge("bevy:sequences_prefill", "Running requests that have no token yet.", prefill);
    families.gauge("bevy:requests_waiting_experts", "Requests that wait for an expert.", waiting);
    families.gauge("bevy:queue_length", "Requests that wait for a sequence.",
                   std::max(0.0, input.inside - busy));
    families.gauge("bevy:replies_open", "Replies that are being written.", input.replies);
}

}  // namespace

std::string metrics_text(const MetricsInput& input) {
    Families families;
    add_llama(input, families);
    add_experts(input.snapshot.stats, input.expert_slots, families);
    add_schedule(input, families);
    add_sequences(input, families);
    return families.text();
}

}  // namespace bevy
