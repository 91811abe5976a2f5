#include "cli/sim_sweep.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <format>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include "cli/profiles.h"
#include "core/core.h"
#include "core/eviction/registry.h"
#include "sim/generated_routes.h"
#include "sim/known_future_eviction.h"
#include "sim/route_source.h"

namespace bevy {
namespace {

constexpr uint32_t kRecordedDrop = 16;  // recorded prompts often share a beginning
constexpr const char* kGenerated = "generated routes";

uint32_t drop_of(const SimOptions& options) {
    return options.drop.value_or(options.trace.empty() ? 0 : kRecordedDrop);
}

// The built-in model of the same shape as the trace.
Result<ModelProfile> model_of(const RouteTrace& trace, const std::string& path) {
    for (const std::string& name : model_profile_names()) {
        Result<ModelProfile> model = open_model_profile(name);
        if (model && model->layers == trace.layers && model->experts == trace.experts &&
            model->top_k == trace.top_k)
            return model;
    }
    return fail(ErrorCode::kNotFound,
                std::format("no known model has the shape of {}: {} layers of {} experts, {} of "
                            "them per token",
                            path, trace.layers, trace.experts, trace.top_k),
                "give --model with a JSON file; those in profiles/models/ of the source are "
                "examples");
}

Status open_routes(const SimOptions& options, SimSweep& sweep) {
    if (options.trace.empty() && options.model.empty())
        return fail(ErrorCode::kInvalidArgument, "neither routes nor a model are given",
                    "give --trace FILE, or --model NAME for generated routes");
    if (!options.trace.empty()) {
        Result<RouteTrace> trace = read_route_trace(options.trace);
        if (!trace)
            return std::unexpected(trace.error());
        sweep.trace = std::move(*trace);
        sweep.routes = options.trace;
    }
    Result<ModelProfile> model = options.model.empty() ? model_of(sweep.trace, options.trace)
                                                       : open_model_profile(options.model);
    if (!model)
        return std::unexpected(model.error());
    sweep.model = std::move(*model);
    if (options.trace.empty()) {
        sweep.trace = generate_routes({.layers = sweep.model.layers,
                                       .experts = sweep.model.experts,
                                       .top_k = sweep.model.top_k,
                                       .statistics = sweep.model.routing});
        sweep.routes = kGenerated;
    }
    const Result<RouteSource> usable =
        RouteSource::create(sweep.trace, {.drop_tokens = drop_of(options)});
    return usable ? Status() : std::unexpected(usable.error());
}

Result<uint32_t> slots_of(const CacheSize& size, const ModelProfile& model) {
    const uint64_t all = model.expert_count();
    const uint64_t slots = size.kind == CacheSize::Kind::kPercent
                               ? (all * size.value + 5000) / 10000
                               : std::min(size.value / model.expert_bytes, all);
    if (slots < model.top_k)
        return fail(ErrorCode::kBudget,
                    std::format("a cache of {} experts is too small for {}, which needs {} for a "
                                "token",
                                slots, model.name, model.top_k),
                    std::format("give --cache {:.2g}% or more",
                                std::ceil(1e4 * model.top_k / static_cast<double>(all)) / 100));
    return static_cast<uint32_t>(slots);
}

// Names and numbers that the core does not take are found before hours of computing.
Status check_core(const ExperimentOptions& options) {
    CoreConfig core = options.core;
    core.moe_layers = options.model.layers;
    core.experts_per_layer = options.model.experts;
    core.experts_used = options.model.top_k;
    core.slots = options.slots;
    core.sequences = options.parallel;
    core.queue_max = options.parallel;
    core.reads_inflight_max = options.hardware.transfers_inflight;
    core.prefill_sequences = 1;
    core.expert_bytes = options.model.expert_bytes;
    core.dense_bytes.assign(options.model.layers + 1, 0);
    core.guessed_layers = core.lookahead;  // the simulated processor guesses whatever is asked
    core.guesses_are_true = true;
    // Not one of the core's, but always possible.
    if (core.eviction == kKnownFutureEviction)
        core.eviction = eviction_policies().front().name;
    const Result<std::unique_ptr<Core>> made = Core::create(core);
    return made ? Status() : std::unexpected(made.error());
}

ExperimentOptions load_of(const SimOptions& options, const ModelProfile& model) {
    ExperimentOptions load;
    load.model = model;
    load.tokens_warmup = options.warmup;
    load.tokens_measured = options.tokens;
    load.drop_tokens = drop_of(options);
    load.prompt_tokens = options.prompt_tokens;
    load.request_tokens_max = options.request_tokens;
    load.guess_right_resident = options.guess_right_resident;
    load.guess_right_missing = options.guess_right_missing;
    load.core.lookahead = options.lookahead;
    load.core.prefetch_reads_max = options.prefetch_reads;
    if (options.arrivals_per_second > 0)
        load.arrival_gap = {std::llround(1e9 / options.arrivals_per_second)};
    return load;
}

// One combination of all but the seeds.
Status add_runs(const SimOptions& options, const SimRun& run, SimSweep& sweep) {
    SimRun checked = run;
    checked.options.core.policy = checked.policy;
    checked.options.core.eviction = checked.eviction;
    checked.options.core.read_order = options.read_order;
    if (Status status = check_core(checked.options); !status)
        return status;
    for (const uint64_t seed : options.seeds) {
        sweep.runs.push_back(run);
        sweep.runs.back().options.seed = seed;
        sweep.runs.back().options.core.read_order = options.read_order;
    }
    return {};
}

Status add_machine(const SimOptions& options, const std::string& name, SimSweep& sweep) {
    const Result<HardwareProfile> hardware = open_hardware_profile(name);
    if (!hardware)
        return std::unexpected(hardware.error());
    SimRun run{.options = load_of(options, sweep.model)};
    run.options.hardware = *hardware;
    for (const uint32_t parallel : options.parallel) {
        run.options.parallel = parallel;
        for (const CacheSize& cache : options.caches) {
            const Result<uint32_t> slots = slots_of(cache, sweep.model);
            if (!slots)
                return std::unexpected(slots.error());
            run.options.slots = *slots;
            for (const std::string& eviction : options.evictions) {
                run.eviction = eviction;
                for (const std::string& policy : options.policies) {
                    run.policy = policy;
                    if (Status status = add_runs(options, run, sweep); !status)
                        return status;
                }
            }
        }
    }
    return {};
}

// What two runs must agree in for one to bound the other.
auto setting_of(const SimRun& run) {
    return std::tuple(run.options.hardware.name, run.options.parallel, run.options.slots,
                      run.eviction, run.options.seed);
}

void add_bounds(SimSweep& sweep) {
    // Both kinds of lockstep read the same experts, but the one that overlaps is what the bound is
    // made of.
    std::map<decltype(setting_of(sweep.runs.front())), const SimRun*> references;
    for (const char* policy : {"lockstep", "lockstep-overlap"}) {
        for (const SimRun& run : sweep.runs) {
            if (run.result && run.policy == policy)
                references[setting_of(run)] = &run;
        }
    }
    for (SimRun& run : sweep.runs) {
        const auto reference = references.find(setting_of(run));
        if (run.result && reference != references.end())
            run.bound = bound_tokens_per_second(*run.result, *reference->second->result);
    }
}

// The experiments, taken one after the other by several threads.
class Workers {
public:
    Workers(SimSweep& sweep, uint32_t jobs, const SweepProgress& progress)
        : sweep_(sweep), progress_(progress), working_(jobs) {
        for (uint32_t i = 0; i < jobs; i++)
            threads_.emplace_back([this] { work(); });
    }

    Status wait() {
        std::unique_lock lock(mutex_);
        while (working_ > 0) {
            changed_.wait_for(lock, std::chrono::milliseconds(200));
            const size_t done = done_;
            lock.unlock();
            if (progress_.show)
                progress_.show(done, sweep_.runs.size());
            lock.lock();
        }
        return error_ ? std::unexpected(*error_) : Status();
    }

private:
    bool keep_going() const {
        return !failed_ && (!progress_.keep_going || progress_.keep_going());
    }

    void work() {
        while (keep_going()) {
            const size_t number = next_++;
            if (number >= sweep_.runs.size())
                break;
            run(sweep_.runs[number]);
        }
        std::lock_guard lock(mutex_);
        working_--;
        changed_.notify_all();
    }

    void run(SimRun& run) {
        ExperimentOptions options = run.options;
        options.core.policy = run.policy;
        options.core.eviction = run.eviction;
        options.keep_going = [this] { return keep_going(); };
        Result<ExperimentResult> result = run_experiment(options, sweep_.trace);
        std::lock_guard lock(mutex_);
        if (result) {
            run.result = std::move(*result);
            done_++;
        } else if (result.error().code != ErrorCode::kCancelled && !error_) {
            error_ = result.error();
            failed_ = true;
        }
        changed_.notify_all();
    }

    SimSweep& sweep_;
    const SweepProgress& progress_;
    std::atomic<size_t> next_ = 0;
    std::atomic<bool> failed_ = false;
    std::mutex mutex_;
    std::condition_variable changed_;
    size_t done_ = 0;
    std::optional<Error> error_;
    size_t working_;
    std::vector<std::jthread> threads_;
};

}  // namespace

Result<SimSweep> plan_sweep(const SimOptions& options) {
    SimSweep sweep;
    if (Status status = open_routes(options, sweep); !status)
        return std::unexpected(status.error());
    for (const std::string& name : options.hardware) {
        if (Status status = add_machine(options, name, sweep); !status)
            return std::unexpected(status.error());
    }
    return sweep;
}

Status run_sweep(SimSweep& sweep, uint32_t jobs, const SweepProgress& progress) {
    Workers workers(sweep, jobs, progress);
    Status status = workers.wait();
    add_bounds(sweep);
    return status;
}

}  // namespace bevy
