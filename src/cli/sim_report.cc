#include "cli/sim_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <format>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "cli/line_chart.h"
#include "cli/text_table.h"

namespace bevy {
namespace {

using nlohmann::ordered_json;

constexpr std::array<std::pair<const char*, uint64_t CoreStats::*>, 24> kCounters = {{
    {"requests_arrived", &CoreStats::requests_arrived},
    {"requests_finished", &CoreStats::requests_finished},
    {"requests_cancelled", &CoreStats::requests_cancelled},
    {"requests_failed", &CoreStats::requests_failed},
    {"passes", &CoreStats::passes},
    {"passes_decode", &CoreStats::passes_decode},
    {"expert_hits", &CoreStats::expert_hits},
    {"expert_joins", &CoreStats::expert_joins},
    {"expert_misses", &CoreStats::expert_misses},
    {"expert_prefetched", &CoreStats::expert_prefetched},
    {"guesses", &CoreStats::guesses},
    {"guesses_right", &CoreStats::guesses_right},
    {"prefetches", &CoreStats::prefetches},
    {"prefetches_useful", &CoreStats::prefetches_useful},
    {"reads_started", &CoreStats::reads_started},
    {"reads_done", &CoreStats::reads_done},
    {"reads_failed", &CoreStats::reads_failed},
    {"reads_cancelled", &CoreStats::reads_cancelled},
    {"evictions", &CoreStats::evictions},
    {"steps", &CoreStats::steps},
    {"step_sequences", &CoreStats::step_sequences},
    {"step_experts", &CoreStats::step_experts},
    {"step_expert_uses", &CoreStats::step_expert_uses},
    {"idle_steps", &CoreStats::idle_steps},
}};

// "1:12 4:3": how often each size came up.
std::string histogram(const std::vector<uint64_t>& sizes) {
    std::string text;
    for (size_t size = 0; size < sizes.size(); size++) {
        if (sizes[size] > 0)
            text += std::format("{}{}:{}", text.empty() ? "" : " ", size, sizes[size]);
    }
    return text;
}

ordered_json setting_fields(const SimSweep& sweep, const SimRun& run) {
    const ExperimentOptions& options = run.options;
    return {{"model", sweep.model.name},
            {"routes", sweep.routes},
            {"hardware", options.hardware.name},
            {"policy", run.policy},
            {"eviction", run.eviction},
            {"parallel", options.parallel},
            {"slots", options.slots},
            {"cache_share", run.cache_share()},
            {"seed", options.seed},
            {"warmup_tokens", options.tokens_warmup},
            {"drop_tokens", options.drop_tokens},
            {"prompt_tokens", options.prompt_tokens},
            {"request_tokens", options.request_tokens_max},
            {"arrival_gap_s", options.arrival_gap.seconds()}};
}

// REQUIRES: a result.
ordered_json fields_of(const SimSweep& sweep, const SimRun& run) {
    const ExperimentResult& r = *run.result;
    ordered_json fields = setting_fields(sweep, run);
    fields["tokens"] = r.tokens;
    fields["window_s"] = r.window.seconds();
    fields["tokens_per_second"] = r.tokens_per_second();
    fields["bound_tokens_per_second"] = run.bound ? ordered_json(*run.bound) : ordered_json();
    fields["hit_rate"] = r.stats.hit_rate();
    fields["misses_per_token"] = r.misses_per_token();
    fields["reads_per_token"] = r.reads_per_token();
    fields["group_size_mean"] = r.stats.group_size_mean();
    fields["link_utilisation"] = r.link_utilisation();
    fields["compute_utilisation"] = r.compute_utilisation();
    fields["stall_share"] = r.stall_share();
    fields["token_latency_p50_s"] = r.token_latency_p50.seconds();
    fields["token_latency_p99_s"] = r.token_latency_p99.seconds();
    fields["queued_p50_s"] = r.queued_p50.seconds();
    fields["queued_p99_s"] = r.queued_p99.seconds();
    fields["prefill_p50_s"] = r.prefill_p50.seconds();
    fields["prefill_p99_s"] = r.prefill_p99.seconds();
    fields["fairness_spread"] = r.fairness_spread;
    fields["requests_refused"] = r.requests_refused;
    fields["merged_compute_per_token_s"] = r.merged_compute_per_token.seconds();
    fields["transfer_s"] = r.transfer.seconds();
    fields["prompt_tokens_computed"] = r.stats.tokens_prompt;
    for (const auto& [name, counter] : kCounters)
        fields[name] = r.stats.core.*counter;
    fields["group_sizes"] = histogram(r.stats.group_sizes);
    fields["hash"] = std::format("{:016x}", r.hash);
    return fields;
}

// The runs of one setting that have results: they differ in their seeds.
using Runs = std::vector<const SimRun*>;

bool same_setting(const SimRun& a, const SimRun& b) {
    return a.policy == b.policy && a.eviction == b.eviction &&
           a.options.parallel == b.options.parallel && a.options.slots == b.options.slots &&
           a.options.hardware.name == b.options.hardware.name;
}

std::vector<Runs> settings_of(const SimSweep& sweep) {
    std::vector<Runs> settings;
    for (const SimRun& run : sweep.runs) {
        if (!run.result)
            continue;
        if (settings.empty() || !same_setting(*settings.back().front(), run))
            settings.emplace_back();
        settings.back().push_back(&run);
    }
    return settings;
}

template <class Value>
double mean(const Runs& runs, Value value) {
    double sum = 0;
    for (const SimRun* run : runs)
        sum += value(*run);
    return sum / static_cast<double>(runs.size());
}

double throughput(const SimRun& run) {
    return run.result->tokens_per_second();
}

// "12.3", with "+- 0.4" over several seeds.
std::string throughput_text(const Runs& runs) {
    const double average = mean(runs, throughput);
    std::string text = std::format("{:.4g}", average);
    if (runs.size() > 1) {
        const double variance =
            mean(runs, [&](const SimRun& run) { return std::pow(throughput(run) - average, 2); });
        const double count = static_cast<double>(runs.size());
        text += std::format(" \u00b1 {:.2g}", std::sqrt(variance * count / (count - 1)));
    }
    return text;
}

struct Column {
    std::string name;
    std::function<std::string(const Runs&)> cell;
    bool left = false;  // aligned
};

template <class Value>
Column number(const char* name, const char* format, Value value) {
    return {name, [=](const Runs& runs) {
                const double average = mean(runs, value);
                return std::vformat(format, std::make_format_args(average));
            }};
}

bool all_bounded(const SimSweep& sweep) {
    return std::ranges::all_of(
        sweep.runs, [](const SimRun& run) { return !run.result || run.bound.has_value(); });
}

bool evictions_vary(const SimSweep& sweep) {
    return std::ranges::any_of(
        sweep.runs, [&](const SimRun& run) { return run.eviction != sweep.runs.front().eviction; });
}

std::vector<Column> columns_of(const SimSweep& sweep) {
    std::vector<Column> columns = {
        {"hardware", [](const Runs& r) { return r.front()->options.hardware.name; }, true},
        {"np", [](const Runs& r) { return std::to_string(r.front()->options.parallel); }},
        {"cache",
         [](const Runs& r) { return std::format("{:.3g} %", 100 * r.front()->cache_share()); }},
        {"eviction", [](const Runs& r) { return r.front()->eviction; }, true},
        {"policy", [](const Runs& r) { return r.front()->policy; }, true},
        {"tok/s", throughput_text},
    };
    if (all_bounded(sweep))
        columns.push_back(number("of bound", "{:.2f}",
                                 [](const SimRun& run) { return throughput(run) / *run.bound; }));
    const auto result = [](auto get) {
        return [get](const SimRun& run) { return get(*run.result); };
    };
    using R = const ExperimentResult&;
    columns.push_back(number("hits", "{:.2f}", result([](R r) { return r.stats.hit_rate(); })));
    columns.push_back(
        number("reads/tok", "{:.1f}", result([](R r) { return r.reads_per_token(); })));
    columns.push_back(
        number("group", "{:.1f}", result([](R r) { return r.stats.group_size_mean(); })));
    columns.push_back(number("link", "{:.2f}", result([](R r) { return r.link_utilisation(); })));
    columns.push_back(
        number("compute", "{:.2f}", result([](R r) { return r.compute_utilisation(); })));
    columns.push_back(number("stall", "{:.2f}", result([](R r) { return r.stall_share(); })));
    columns.push_back(number("p50 ms", "{:.4g}",
                             result([](R r) { return 1e3 * r.token_latency_p50.seconds(); })));
    columns.push_back(number("p99 ms", "{:.4g}",
                             result([](R r) { return 1e3 * r.token_latency_p99.seconds(); })));
    columns.push_back(number("spread", "{:.1f} %",
                             [](const SimRun& run) { return 100 * run.result->fairness_spread; }));
    return columns;
}

std::string chart_title(const SimRun& run, bool over_cache) {
    const std::string& hardware = run.options.hardware.name;
    return over_cache ? std::format("{}, {} at once", hardware, run.options.parallel)
                      : std::format("{}, {:.3g} % in memory", hardware, 100 * run.cache_share());
}

}  // namespace

std::string sim_table(const SimSweep& sweep) {
    const std::vector<Column> columns = columns_of(sweep);
    std::vector<std::vector<std::string>> rows;
    for (const Runs& runs : settings_of(sweep)) {
        std::vector<std::string>& row = rows.emplace_back();
        for (const Column& column : columns)
            row.push_back(column.cell(runs));
    }
    if (rows.empty())
        return {};
    std::vector<TableColumn> heads;
    for (const Column& column : columns)
        heads.push_back({column.name, column.left});
    return markdown_table(heads, rows);
}

std::string sim_csv(const SimSweep& sweep) {
    std::vector<ordered_json> objects;
    for (const SimRun& run : sweep.runs) {
        if (run.result)
            objects.push_back(fields_of(sweep, run));
    }
    return csv_table(objects);
}

std::string sim_json(const SimSweep& sweep) {
    ordered_json runs = ordered_json::array();
    for (const SimRun& run : sweep.runs) {
        if (run.result)
            runs.push_back(fields_of(sweep, run));
    }
    const ordered_json object = {{"version", BEVY_VERSION}, {"runs", std::move(runs)}};
    return object.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::string sim_plot(const SimSweep& sweep) {
    std::set<uint32_t> caches;
    std::set<uint32_t> parallel;
    for (const SimRun& run : sweep.runs) {
        caches.insert(run.options.slots);
        parallel.insert(run.options.parallel);
    }
    const bool over_cache = caches.size() >= parallel.size();
    const bool name_eviction = evictions_vary(sweep);
    std::vector<LineChart> charts;
    std::map<std::string, std::map<double, double>> lines;  // of the last chart, by label
    const auto close = [&] {
        for (const auto& [label, points] : lines)
            charts.back().lines.push_back({label, {points.begin(), points.end()}});
        lines.clear();
    };
    // Grouped by chart; what belongs to one is not side by side in the sweep.
    std::map<std::pair<size_t, uint32_t>, std::vector<Runs>> settings;
    std::map<std::string, size_t> machines;
    for (Runs& runs : settings_of(sweep)) {
        const ExperimentOptions& options = runs.front()->options;
        const size_t machine =
            machines.try_emplace(options.hardware.name, machines.size()).first->second;
        settings[{machine, over_cache ? options.parallel : options.slots}].push_back(runs);
    }
    for (const auto& [key, all] : settings) {
        charts.push_back({.title = chart_title(*all.front().front(), over_cache),
                          .x_label = over_cache ? "% of experts in memory" : "requests at once",
                          .y_label = "tokens/s",
                          .x_logarithmic = !over_cache});
        for (const Runs& runs : all) {
            const SimRun& run = *runs.front();
            const std::string label = name_eviction ? run.policy + ", " + run.eviction : run.policy;
            const double x = over_cache ? 100 * run.cache_share() : run.options.parallel;
            lines[label][x] = mean(runs, throughput);
        }
        close();
    }
    return draw_line_charts(charts);
}

}  // namespace bevy
