#include "cli/session.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "compute/ggml_compute.h"
#include "core/policy/registry.h"
#include "engine/machine_memory.h"
#include "storage/file_link.h"
#include "storage/model_files.h"
#include "storage/slot_arena.h"
#include "storage/slot_layout.h"

namespace bevy {
namespace {

// How many layers the compute has to guess for the policy.
Result<uint32_t> guessed_layers(const SessionOptions& options) {
    Result<PolicyName> policy = parse_policy_name(options.policy);
    if (!policy)
        return std::unexpected(policy.error());
    return policy->predictor && policy->predictor->needs_guesses ? options.lookahead : 0;
}

ComputeOptions compute_options(const SessionOptions& options, uint32_t context) {
    const uint32_t cores = std::max(std::thread::hardware_concurrency(), 1u);
    ComputeOptions compute;
    compute.sequences = options.parallel;
    compute.context_per_sequence = context;
    compute.chunk_tokens = std::min(options.ubatch, context);
    // Prompts that are processed together read each expert once for all of them.
    compute.prefill_lanes = std::clamp(options.batch / compute.chunk_tokens, 1u, options.parallel);
    compute.threads = options.threads == 0 ? cores : options.threads;
    compute.type_k = options.cache_type_k;
    compute.type_v = options.cache_type_v;
    return compute;
}

// What planning finds out on the way and opening needs again.
struct Planned {
    uint32_t context = 0;
    ComputeOptions compute;
    ModelFiles files;
    SlotLayout layout;
    MemoryPlan memory;
};

Result<uint64_t> choose_budget(const SessionOptions& options) {
    if (options.memory_bytes != 0)
        return options.memory_bytes;
    Result<MachineMemory> machine = detect_machine_memory();
    if (!machine)
        return fail(machine.error().code, machine.error().message,
                    "give --memory, for example 8GiB");
    return machine->budget_bytes;
}

Result<Planned> plan_everything(const OpenedModel& model, const SessionOptions& options) {
    Planned planned;
    Result<uint32_t> context = choose_context(model.shape, options.context, options.parallel);
    if (!context)
        return std::unexpected(context.error());
    planned.context = *context;
    planned.compute = compute_options(options, *context);
    Result<uint32_t> guesses = guessed_layers(options);
    if (!guesses)
        return std::unexpected(guesses.error());
    planned.compute.guessed_layers = *guesses;
    Result<ComputeMemory> need =
        GgmlCompute::memory_need(model.file, *model.architecture, model.shape, planned.compute);
    if (!need)
        return std::unexpected(need.error());
    Result<ModelFiles> files = open_model_files(model.file.paths(), options.link);
    if (!files)
        return std::unexpected(files.error());
    planned.files = std::move(*files);
    Result<SlotLayout> layout = plan_slot_layout(model.experts.table, planned.files.block);
    if (!layout)
        return std::unexpected(layout.error());
    planned.layout = std::move(*layout);
    Result<uint64_t> budget = choose_budget(options);
    if (!budget)
        return std::unexpected(budget.error());
    MemoryDemand demand;
    demand.budget_bytes = *budget;
    demand.resident_bytes = need->resident;
    demand.kv_bytes_per_sequence = (need->kv + options.parallel - 1) / options.parallel;
    demand.sequences = options.parallel;
    demand.context_per_sequence = planned.context;
    demand.work_bytes = need->activations + need->graph + need->work;
    demand.bounce_bytes = bounce_bytes(planned.layout, options.link);
    // Some of ggml's scratch grows with the slots; the plan sees it as part of them.
    demand.slot_bytes = planned.layout.slot_bytes + need->work_per_slot;
    demand.expert_count = model.experts.table.expert_count();
    demand.experts_used = model.shape.experts_used;
    demand.cache = options.expert_cache;
    Result<MemoryPlan> memory = plan_memory(demand);
    if (!memory)
        return std::unexpected(memory.error());
    planned.memory = std::move(*memory);
    return planned;
}

EngineConfig engine_config(const OpenedModel& model, const SessionOptions& options,
                           const Planned& planned, const ComputeShape& shape) {
    EngineConfig config;
    config.core.moe_layers = shape.moe_layers;
    config.core.experts_per_layer = shape.experts_per_layer;
    config.core.experts_used = shape.experts_used;
    config.core.last_layer_is_moe = shape.last_layer_is_moe;
    config.core.dense_bytes = shape.dense_bytes;
    config.core.slots = planned.memory.slots;
    config.core.sequences = options.parallel;
    config.core.queue_max = 4 * options.parallel + 16;
    config.core.reads_inflight_max = options.link.transfers_inflight_max;
    config.core.chunk_tokens = planned.compute.chunk_tokens;
    config.core.prefill_sequences = planned.compute.prefill_lanes;
    config.core.expert_bytes =
        model.experts.table.total_bytes() / std::max(model.experts.table.expert_count(), 1u);
    config.core.policy = options.policy;
    config.core.eviction = options.eviction;
    config.core.read_order = options.read_order;
    config.core.lookahead = options.lookahead;
    config.core.prefetch_reads_max = options.prefetch_reads;
    config.core.guessed_layers = shape.guessed_layers;
    config.context_per_sequence = planned.context;
    config.vocabulary = model.shape.vocabulary;
    return config;
}

}  // namespace

// In the order of construction; each may use those above it.
struct Session::Parts {
    SessionOptions options;
    OpenedModel model;
    std::unique_ptr<LlamaVocabulary> vocabulary;
    uint32_t context = 0;
    MemoryPlan plan;
    SlotLayout layout;
    SystemClock clock;
    std::optional<SlotArena> arena;
    std::unique_ptr<Link> link;
    std::unique_ptr<Compute> compute;
    std::unique_ptr<TraceRecorder> trace;
    std::unique_ptr<RouteRecorder> routes;
    std::unique_ptr<EngineThread> engine;

    Status connect(Planned planned, const SessionEvents& events);
    Status open_recorders(const CoreConfig& core);
    void tell(const SessionEvents& events, const std::vector<std::string>& notices) const {
        for (const std::string& notice : notices) {
            if (events.notice)
                events.notice(notice);
        }
    }
};

Status Session::Parts::connect(Planned planned, const SessionEvents& events) {
    Result<ComputeShape> shape = GgmlCompute::compute_shape(
        model.file, *model.architecture, model.shape, planned.compute.guessed_layers);
    if (!shape)
        return std::unexpected(shape.error());
    const EngineConfig config = engine_config(model, options, planned, *shape);
    // Says now, and not when gigabytes have been loaded, what the core would refuse.
    if (auto possible = Core::create(config.core); !possible)
        return std::unexpected(possible.error());
    layout = planned.layout;
    tell(events, planned.files.notices);
    Result<SlotArena> made_arena = SlotArena::create(layout.slot_bytes, plan.slots);
    if (!made_arena)
        return std::unexpected(made_arena.error());
    arena = std::move(*made_arena);
    Result<OpenedLink> opened = make_file_link(std::move(planned.files), model.experts.table,
                                               layout, *arena, options.link, clock);
    if (!opened)
        return std::unexpected(opened.error());
    link = events.decorate_link ? events.decorate_link(std::move(opened->link))
                                : std::move(opened->link);
    tell(events, opened->notices);
    const SlotMemory slots{.base = arena->base(), .slots = arena->slots(), .layout = &layout};
    Result<std::unique_ptr<GgmlCompute>> made_compute = GgmlCompute::open(
        model.file, *model.architecture, model.shape, planned.compute, slots,
        [waked = link.get()] { waked->wake(); }, clock, events.loading);
    if (!made_compute)
        return std::unexpected(made_compute.error());
    compute = std::move(*made_compute);
    if (events.decorate_compute)
        compute = events.decorate_compute(std::move(compute));
    if (Status status = open_recorders(config.core); !status)
        return status;
    Result<std::unique_ptr<EngineThread>> started =
        EngineThread::start(config, *link, *compute, clock, trace.get(), routes.get());
    if (!started)
        return std::unexpected(started.error());
    engine = std::move(*started);
    return {};
}

Status Session::Parts::open_recorders(const CoreConfig& core) {
    if (!options.trace.empty()) {
        Result<std::unique_ptr<TraceRecorder>> recorder = TraceRecorder::open(options.trace);
        if (!recorder)
            return std::unexpected(recorder.error());
        trace = std::move(*recorder);
    }
    if (!options.record_routes.empty()) {
        Result<std::unique_ptr<RouteRecorder>> recorder =
            RouteRecorder::open(options.record_routes, {.layers = core.moe_layers,
                                                        .experts = core.experts_per_layer,
                                                        .top_k = core.experts_used});
        if (!recorder)
            return std::unexpected(recorder.error());
        routes = std::move(*recorder);
    }
    return {};
}

Session::Session(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::open(const SessionOptions& options,
                                               const SessionEvents& events) {
    Result<OpenedModel> model = open_model(options.model);
    if (!model)
        return std::unexpected(model.error());
    Result<Planned> planned = plan_everything(*model, options);
    if (!planned)
        return std::unexpected(planned.error());
    auto parts = std::make_unique<Parts>();
    parts->options = options;
    parts->model = std::move(*model);
    parts->context = planned->context;
    parts->plan = planned->memory;
    Result<std::unique_ptr<LlamaVocabulary>> vocabulary = open_vocabulary(parts->model);
    if (!vocabulary)
        return std::unexpected(vocabulary.error());
    parts->vocabulary = std::move(*vocabulary);
    parts->tell(events, parts->plan.warnings);
    if (Status status = parts->connect(std::move(*planned), events); !status)
        return std::unexpected(status.error());
    return std::unique_ptr<Session>(new Session(std::move(parts)));
}

const LlamaVocabulary& Session::vocabulary() const {
    return *parts_->vocabulary;
}
EngineThread& Session::engine() {
    return *parts_->engine;
}
uint32_t Session::context() const {
    return parts_->context;
}
const MemoryPlan& Session::plan() const {
    return parts_->plan;
}

const OpenedModel& Session::model() const {
    return parts_->model;
}

Status Session::close() {
    parts_->engine->stop();
    Status timeline = parts_->trace ? parts_->trace->close() : Status();
    Status routes = parts_->routes ? parts_->routes->close() : Status();
    return timeline ? routes : timeline;
}

Result<MemoryPlan> plan_session(const OpenedModel& model, const SessionOptions& options) {
    Result<Planned> planned = plan_everything(model, options);
    if (!planned)
        return std::unexpected(planned.error());
    return std::move(planned->memory);
}

}  // namespace bevy
