#include "cli/bench_report.h"

#include <algorithm>
#include <format>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "cli/line_chart.h"
#include "cli/text_table.h"

namespace bevy {
namespace {

using nlohmann::ordered_json;

double cache_share(const BenchResult& result) {
    return result.experts == 0 ? 0.0 : static_cast<double>(result.slots) / result.experts;
}

template <class Value>
double median(const BenchSetting& setting, Value value) {
    std::vector<double> values;
    for (const BenchResult& result : setting.results)
        values.push_back(value(result));
    std::ranges::sort(values);
    const size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

double throughput(const BenchResult& result) {
    return result.tokens_per_second();
}

// "12.3", with "(11.9 - 12.8)" over several repetitions.
std::string throughput_text(const BenchSetting& setting) {
    std::string text = std::format("{:.4g}", median(setting, throughput));
    if (setting.results.size() > 1) {
        const auto [least, most] = std::ranges::minmax(setting.results, {}, throughput);
        text += std::format(" ({:.4g} - {:.4g})", throughput(least), throughput(most));
    }
    return text;
}

struct Column {
    TableColumn head;
    std::function<std::string(const BenchSetting&)> cell;
};

template <class Value>
Column number(const char* name, const char* format, Value value) {
    return {{name}, [=](const BenchSetting& setting) {
                const double middle = median(setting, value);
                return std::vformat(format, std::make_format_args(middle));
            }};
}

using R = const BenchResult&;

bool prefetches(const BenchSweep& sweep) {
    return std::ranges::any_of(sweep.settings, [](const BenchSetting& setting) {
        return std::ranges::any_of(setting.results,
                                   [](R r) { return r.stats.core.prefetches > 0; });
    });
}

std::vector<Column> columns_of(const BenchSweep& sweep) {
    std::vector<Column> columns = {
        {{"np"}, [](const BenchSetting& s) { return std::to_string(s.parallel); }},
        {{"cache"},
         [](const BenchSetting& s) {
             return std::format("{:.3g} %", 100 * cache_share(s.results.front()));
         }},
        {{"eviction", true}, [](const BenchSetting& s) { return s.eviction; }},
        {{"policy", true}, [](const BenchSetting& s) { return s.policy; }},
        {{"tok/s"}, throughput_text},
    };
    const auto add = [&](const char* name, const char* format, auto value) {
        columns.push_back(number(name, format, value));
    };
    add("of bound", "{:.2f}", [](R r) { return r.of_bound(); });
    add("hits", "{:.2f}", [](R r) { return r.stats.hit_rate(); });
    add("MB/tok", "{:.1f}", [](R r) {
        return static_cast<double>(r.stats.link_bytes) / 1e6 / static_cast<double>(r.tokens);
    });
    add("link", "{:.2f}", [](R r) { return r.stats.link_utilisation(); });
    add("compute", "{:.2f}", [](R r) { return r.stats.compute_utilisation(); });
    add("stall", "{:.2f}", [](R r) { return r.stats.stall_share(); });
    add("group", "{:.1f}", [](R r) { return r.stats.group_size_mean(); });
    if (prefetches(sweep)) {
        add("precision", "{:.2f}", [](R r) { return r.stats.prefetch_precision(); });
        add("recall", "{:.2f}", [](R r) { return r.stats.prefetch_recall(); });
    }
    add("first token s", "{:.3g}", [](R r) { return r.first_token_p50.seconds(); });
    add("p50 ms", "{:.4g}", [](R r) { return 1e3 * r.token_gap_p50.seconds(); });
    add("p99 ms", "{:.4g}", [](R r) { return 1e3 * r.token_gap_p99.seconds(); });
    add("spread", "{:.1f} %", [](R r) { return 100 * r.fairness_spread; });
    add("GB/s alone", "{:.2f}", [](R r) { return r.link_bytes_per_second / 1e9; });
    add("peak GiB", "{:.2f}",
        [](R r) { return static_cast<double>(r.peak_resident_bytes) / static_cast<double>(kGiB); });
    return columns;
}

std::vector<std::pair<const char*, uint64_t>> counters_of(R r) {
    const CoreStats& core = r.stats.core;
    return {{"expert_hits", core.expert_hits},
            {"expert_misses", core.expert_misses},
            {"reads_done", core.reads_done},
            {"evictions", core.evictions},
            {"prefetches", core.prefetches},
            {"prefetches_useful", core.prefetches_useful},
            {"steps", core.steps},
            {"idle_steps", core.idle_steps}};
}

ordered_json fields_of(const BenchSweep& sweep, const BenchSetting& setting, size_t repetition) {
    const BenchResult& r = setting.results[repetition];
    const EngineStats& s = r.stats;
    ordered_json fields = {{"version", BEVY_VERSION},
                           {"started", sweep.started},
                           {"processor", sweep.processor},
                           {"cores", sweep.cores},
                           {"model", sweep.model},
                           {"model_bytes", sweep.model_bytes},
                           {"prompt_tokens", sweep.prompt_tokens_max},
                           {"warmup_tokens", sweep.warmup},
                           {"policy", setting.policy},
                           {"eviction", setting.eviction},
                           {"parallel", setting.parallel},
                           {"slots", r.slots},
                           {"cache_share", cache_share(r)},
                           {"cache_bytes", r.expert_cache_bytes},
                           {"repetition", repetition},
                           {"tokens", r.tokens},
                           {"window_s", r.window.seconds()},
                           {"tokens_per_second", r.tokens_per_second()},
                           {"of_bound", r.of_bound()},
                           {"hit_rate", s.hit_rate()},
                           {"link_bytes", s.link_bytes},
                           {"link_bytes_per_second_alone", r.link_bytes_per_second},
                           {"link_bytes_per_second_busy", s.link_bytes_per_second()},
                           {"link_utilisation", s.link_utilisation()},
                           {"compute_utilisation", s.compute_utilisation()},
                           {"stall_share", s.stall_share()},
                           {"sampling_s", s.sampling.seconds()},
                           {"group_size_mean", s.group_size_mean()},
                           {"prefetch_precision", s.prefetch_precision()},
                           {"prefetch_recall", s.prefetch_recall()},
                           {"first_token_p50_s", r.first_token_p50.seconds()},
                           {"first_token_max_s", r.first_token_max.seconds()},
                           {"prompt_tokens_per_second", r.prompt_tokens_per_second},
                           {"token_gap_p50_s", r.token_gap_p50.seconds()},
                           {"token_gap_p99_s", r.token_gap_p99.seconds()},
                           {"fairness_spread", r.fairness_spread},
                           {"peak_resident_bytes", r.peak_resident_bytes}};
    for (const auto& [name, value] : counters_of(r))
        fields[name] = value;
    return fields;
}

std::vector<ordered_json> all_fields(const BenchSweep& sweep) {
    std::vector<ordered_json> objects;
    for (const BenchSetting& setting : sweep.settings) {
        for (size_t i = 0; i < setting.results.size(); i++)
            objects.push_back(fields_of(sweep, setting, i));
    }
    return objects;
}

std::string dump(const ordered_json& object, int indent) {
    return object.dump(indent, ' ', false, ordered_json::error_handler_t::replace);
}

bool evictions_vary(const BenchSweep& sweep) {
    return std::ranges::any_of(sweep.settings, [&](const BenchSetting& setting) {
        return setting.eviction != sweep.settings.front().eviction;
    });
}

}  // namespace

std::string bench_markdown(const BenchSweep& sweep) {
    const std::vector<Column> columns = columns_of(sweep);
    std::vector<TableColumn> heads;
    for (const Column& column : columns)
        heads.push_back(column.head);
    std::vector<std::vector<std::string>> rows;
    for (const BenchSetting& setting : sweep.settings) {
        if (setting.results.empty())
            continue;
        std::vector<std::string>& row = rows.emplace_back();
        for (const Column& column : columns)
            row.push_back(column.cell(setting));
    }
    return rows.empty() ? std::string() : markdown_table(heads, rows);
}

std::string bench_csv(const BenchSweep& sweep) {
    return csv_table(all_fields(sweep));
}

std::string bench_json(const BenchSweep& sweep) {
    return dump(all_fields(sweep), 1) + "\n";
}

std::string bench_jsonl(const BenchSweep& sweep) {
    std::string text;
    for (const ordered_json& object : all_fields(sweep))
        text += dump(object, -1) + "\n";
    return text;
}

std::string bench_plot(const BenchSweep& sweep) {
    std::set<uint32_t> caches;
    std::set<uint32_t> parallel;
    for (const BenchSetting& setting : sweep.settings) {
        if (setting.results.empty())
            continue;
        caches.insert(setting.results.front().slots);
        parallel.insert(setting.parallel);
    }
    const bool over_cache = caches.size() > parallel.size();
    const bool name_eviction = evictions_vary(sweep);
    // By what is the same in one chart, then by line.
    std::map<std::pair<double, std::string>, std::map<std::string, std::map<double, double>>>
        charts;
    for (const BenchSetting& setting : sweep.settings) {
        if (setting.results.empty())
            continue;
        const double share = 100 * cache_share(setting.results.front());
        const std::string line =
            name_eviction ? setting.policy + ", " + setting.eviction : setting.policy;
        const double speed = median(setting, throughput);
        if (over_cache)
            charts[{setting.parallel, std::format("{} at once", setting.parallel)}][line][share] =
                speed;
        else
            charts[{share, std::format("{:.3g} % in memory", share)}][line][setting.parallel] =
                speed;
    }
    std::vector<LineChart> drawn;
    for (const auto& [key, lines] : charts) {
        LineChart& chart = drawn.emplace_back(
            LineChart{.title = key.second,
                      .x_label = over_cache ? "% of experts in memory" : "requests at once",
                      .y_label = "tokens/s",
                      .x_logarithmic = !over_cache,
                      .lines = {}});
        for (const auto& [label, points] : lines)
            chart.lines.push_back({label, {points.begin(), points.end()}});
    }
    return draw_line_charts(drawn);
}

std::optional<std::string> different_outputs(const BenchSweep& sweep) {
    // By request: the longest output so far, which all others must be the beginning of or continue.
    std::vector<std::vector<TokenId>> longest;
    for (const BenchSetting& setting : sweep.settings) {
        for (const BenchResult& result : setting.results) {
            longest.resize(std::max(longest.size(), result.outputs.size()));
            for (size_t i = 0; i < result.outputs.size(); i++) {
                const std::vector<TokenId>& output = result.outputs[i];
                const size_t common = std::min(output.size(), longest[i].size());
                if (!std::ranges::equal(std::span(output).first(common),
                                        std::span(longest[i]).first(common)))
                    return std::format("request {} with policy {}, eviction {}, -np {}", i + 1,
                                       setting.policy, setting.eviction, setting.parallel);
                if (output.size() > longest[i].size())
                    longest[i] = output;
            }
        }
    }
    return std::nullopt;
}

}  // namespace bevy
