// bevy calibrate: this machine and a model as bevy sim sees them, from runs of the real engine.
//
// A few runs with different numbers of requests and cache sizes, so that steps of all kinds occur,
// with and without the link at work; costs are fitted to all steps (sim/step_cost_fit.h). The
// link's speed is that of the runs, in which it shares the machine with the steps; its latency that
// of reads one at a time.
#include <algorithm>
#include <array>
#include <cmath>
#include <format>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "cli/bench_run.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/observed_machine.h"
#include "cli/opened_model.h"
#include "cli/probe.h"
#include "cli/profiles.h"
#include "cli/report.h"
#include "compute/ggml_compute.h"

namespace bevy {
namespace {

using nlohmann::ordered_json;

constexpr Duration kProbe = milliseconds(1500);
constexpr uint32_t kWarmup = 4;

struct Run {
    uint32_t parallel;
    uint32_t cache_percent;
};
constexpr std::array kRuns = {Run{1, 95}, Run{4, 95}, Run{8, 95}, Run{1, 30}, Run{1, 60},
                              Run{4, 30}, Run{4, 60}, Run{8, 30}, Run{8, 60}};

// What the profiles need, as it was found.
struct Calibration {
    ComputeShape shape;
    uint64_t expert_bytes = 0;
    std::vector<StepSample> samples;
    std::vector<double> link_speeds;  // of the runs, bytes per second
    double link_alone = 0;
    double link_one_at_a_time = 0;
    double memory = 0;
};

Result<ComputeShape> shape_of(const OpenedModel& model) {
    return GgmlCompute::compute_shape(model.file, *model.architecture, model.shape);
}

Status run_once(const OpenedModel& model, const CalibrateOptions& options, const Run& run,
                const BenchLoad& load, Calibration& found) {
    SessionOptions session = options.session;
    session.parallel = run.parallel;
    session.expert_cache = {CacheSize::Kind::kPercent, run.cache_percent * 100};
    if (session.context == 0)
        session.context = bench_context(load) * run.parallel;
    ObservedMachine machine(found.shape, found.expert_bytes);
    SessionEvents events;
    machine.decorate(events);
    Result<BenchResult> result = run_bench(model, session, load, events);
    if (!result)
        return std::unexpected(result.error());
    found.samples.append_range(machine.samples());
    if (result->stats.core.reads_done > 0)
        found.link_speeds.push_back(result->stats.link_bytes_per_second());
    return {};
}

Result<Calibration> calibrate(const OpenedModel& model, const CalibrateOptions& options) {
    Calibration found;
    Result<ComputeShape> shape = shape_of(model);
    if (!shape)
        return std::unexpected(shape.error());
    found.shape = std::move(*shape);
    found.expert_bytes = model.experts.table.total_bytes() / model.experts.table.expert_count();
    Result<std::unique_ptr<LlamaVocabulary>> vocabulary = open_vocabulary(model);
    if (!vocabulary)
        return std::unexpected(vocabulary.error());
    const BenchLoad load{
        .prompts = random_prompts(**vocabulary, 1), .tokens = options.tokens, .warmup = kWarmup};
    const uint32_t threads = std::max(options.session.threads, 1u);
    found.memory = probe_memory(
        options.session.threads == 0 ? std::max(std::thread::hardware_concurrency(), 1u) : threads,
        kProbe);
    Result<LinkProbe> alone = probe_link(model, options.session, kProbe);
    if (!alone)
        return std::unexpected(alone.error());
    found.link_alone = alone->bytes_per_second;
    SessionOptions one = options.session;
    one.link.transfers_inflight_max = 1;
    Result<LinkProbe> single = probe_link(model, one, kProbe);
    if (!single)
        return std::unexpected(single.error());
    found.link_one_at_a_time = single->bytes_per_second;
    ProgressLine progress(stderr, "calibrating", options.quiet, ProgressLine::Unit::kCount);
    for (size_t i = 0; i < kRuns.size(); i++) {
        progress.update(i, kRuns.size());
        if (Status status = run_once(model, options, kRuns[i], load, found); !status)
            return std::unexpected(status.error());
    }
    return found;
}

double rounded(double value) {
    return std::round(value * 1000) / 1000;
}

ordered_json hardware_profile(const Calibration& found, const FittedCosts& costs,
                              const CalibrateOptions& options, const OpenedModel& model) {
    std::vector<double> speeds = found.link_speeds;
    std::ranges::sort(speeds);
    const double link = speeds.empty() ? found.link_alone : speeds[speeds.size() / 2];
    const double bytes = static_cast<double>(found.expert_bytes);
    const double latency =
        std::max(0.0, bytes / found.link_one_at_a_time - bytes / found.link_alone);
    return {{"comment",
             std::format("Measured by bevy calibrate on {} with {} cores, with the model {}: costs "
                         "are of its tokens, so use its profile. {} steps, root mean square error "
                         "{:.0f} % of the mean step; the link alone moved {:.2f} GB/s.",
                         processor_name(), std::thread::hardware_concurrency(),
                         model.shape.name.empty() ? options.session.model : model.shape.name,
                         found.samples.size(), 100 * costs.error, found.link_alone / 1e9)},
            {"link_bytes_per_second", std::llround(link)},
            {"link_latency_us", rounded(latency * 1e6)},
            {"transfers_inflight", options.session.link.transfers_inflight_max},
            {"memory_bytes_per_second", std::llround(1e9 / costs.byte_ns)},
            {"memory_contention", rounded(costs.contention)},
            {"processor_contention", rounded(costs.contention)},
            {"launch_us", rounded(costs.launch_ns / 1e3)},
            {"pair_us", rounded(costs.pair_ns / 1e3)},
            {"layer_us", rounded(costs.layer_ns / 1e3)},
            {"head_us", rounded(costs.head_ns / 1e3)}};
}

ordered_json model_profile(const Calibration& found, const OpenedModel& model) {
    const std::vector<uint64_t>& dense = found.shape.dense_bytes;
    // Between the first and the head all layers are alike.
    const uint64_t layer = dense.size() > 2 ? dense[1] : dense[0];
    return {{"comment",
             "Shape and sizes of a model file, by bevy calibrate. How generated routes "
             "would look is not measured: those are the numbers of gpt-oss-20b."},
            {"layers", found.shape.moe_layers},
            {"experts", model.shape.experts},
            {"top_k", model.shape.experts_used},
            {"expert_bytes", found.expert_bytes},
            {"layer_bytes", layer},
            {"entry_bytes", dense[0] > layer ? dense[0] - layer : 0},
            {"head_bytes", dense.back()},
            {"pair_scale", 1},
            {"layer_scale", 1},
            {"head_scale", 1},
            {"routing_popularity", 1.1},
            {"routing_request", 1.25},
            {"routing_drift", 1.25},
            {"routing_memory", 0.5}};
}

void print_costs(const Calibration& found, const FittedCosts& costs) {
    const auto microseconds = [](double ns) { return std::format("{:.1f} us", ns / 1e3); };
    print_table(stdout, "what a step costs",
                {{"steps seen", std::to_string(found.samples.size())},
                 {"launch", microseconds(costs.launch_ns)},
                 {"expert, per token", microseconds(costs.pair_ns)},
                 {"layer, per token", microseconds(costs.layer_ns)},
                 {"head, per token", microseconds(costs.head_ns)},
                 {"weights", std::format("{:.2f} GB/s (memory alone {:.2f})", 1 / costs.byte_ns,
                                         found.memory / 1e9)},
                 {"lost while the link is busy", std::format("{:.0f} %", 100 * costs.contention)},
                 {"error of the fit", std::format("{:.0f} % of the mean", 100 * costs.error)}});
}

}  // namespace

int calibrate_command(const CalibrateOptions& options) {
    Result<OpenedModel> model = open_model(options.session.model);
    if (!model)
        return fail_with(model.error());
    for (const std::string& path : {options.hardware_to, options.model_to}) {
        if (Status status = write_text_file(path, ""); !status)
            return fail_with(status.error());
    }
    Result<Calibration> found = calibrate(*model, options);
    if (interrupted())
        return kExitInterrupted;
    if (!found)
        return fail_with(found.error());
    const FittedCosts costs = fit_step_costs(found->samples, 1e9 / found->memory);
    const std::string hardware = hardware_profile(*found, costs, options, *model).dump(4) + "\n";
    const std::string shape = model_profile(*found, *model).dump(4) + "\n";
    if (Status status = write_text_file(options.hardware_to, hardware); !status)
        return fail_with(status.error());
    if (Status status = write_text_file(options.model_to, shape); !status)
        return fail_with(status.error());
    if (!options.quiet)
        print_costs(*found, costs);
    return kExitOk;
}

}  // namespace bevy
