#include "compute/step_runner.h"

#include <algorithm>

#include "base/assert.h"
#include "compute/backend.h"
#include "compute/memory_bounds.h"

namespace bevy {

namespace {

std::unexpected<Error> bad_option(const char* what) {
    return fail(ErrorCode::kInvalidArgument, std::string("compute needs at least one ") + what);
}

}  // namespace

Result<std::unique_ptr<StepRunner>> StepRunner::plan(const ModelFile& file,
                                                     const Architecture& architecture,
                                                     const ModelShape& shape,
                                                     const ComputeOptions& options,
                                                     const SlotLayout& layout, uint32_t slots) {
    if (options.sequences == 0)
        return bad_option("sequence");
    if (options.context_per_sequence == 0 || options.chunk_tokens == 0)
        return bad_option("token of context and of a chunk");
    if (options.threads == 0)
        return bad_option("thread");
    ggml_backend_dev_t device = cpu_device();
    if (!device)
        return std::unexpected(open_cpu_backend(options.threads).error());
    Result<KvTypes> kv_types = parse_kv_types(options.type_k, options.type_v, shape);
    if (!kv_types)
        return std::unexpected(kv_types.error());
    Result<ResidentWeights> weights = ResidentWeights::describe(file, architecture, shape, device);
    if (!weights)
        return std::unexpected(weights.error());
    const SlotLayout& used =
        layout.layers.empty() ? packed_slot_layout(weights->moe_blocks()) : layout;
    RowPlan rows;
    rows.sequences = options.sequences;
    rows.chunk_tokens = std::min(options.chunk_tokens, options.context_per_sequence);
    rows.lanes = std::max(1u, std::min(options.prefill_lanes, options.sequences));
    rows.context = options.context_per_sequence;
    ComputeOptions fitting = options;
    fitting.guessed_layers = std::min<uint32_t>(
        options.guessed_layers, static_cast<uint32_t>(weights->moe_blocks().size()));
    return std::unique_ptr<StepRunner>(new StepRunner(shape, fitting, rows, *kv_types,
                                                      std::move(*weights), *architecture.graphs,
                                                      used, slots, device));
}

StepRunner::StepRunner(const ModelShape& shape, const ComputeOptions& options, const RowPlan& rows,
                       KvTypes kv_types, ResidentWeights weights, const ArchitectureGraphs& graphs,
                       const SlotLayout& layout, uint32_t slots, ggml_backend_dev_t device)
    : shape_(shape),
      options_(options),
      rows_(rows),
      graphs_(graphs),
      device_(device),
      weights_(std::move(weights)),
      kv_(shape, kv_types, rows.sequences, rows.context),
      slots_(weights_.moe_blocks(), layout, slots),
      slot_count_(slots),
      activations_(shape, rows),
      passes_(rows.sequences),
      logits_(rows.sequences),
      rows_of_expert_(shape.experts + 1) {
    for (uint32_t lane = rows.lanes; lane > 0; lane--)
        free_lanes_.push_back(lane - 1);
    ggml_init_params params{};
    params.mem_size = graph_bookkeeping_bytes(graph_tensors_max());
    params.no_alloc = true;
    graph_context_.reset(ggml_init(params));
    BEVY_ASSERT(graph_context_ != nullptr);
    for (GgmlPtr<ggml_gallocr>& allocator : allocators_)
        allocator.reset(ggml_gallocr_new(ggml_backend_dev_buffer_type(device)));
}

StepTensors StepRunner::tensors() const {
    return {shape_, graphs_, weights_, kv_, slots_, activations_, options_.guessed_layers};
}

size_t StepRunner::graph_tensors_max() const {
    size_t singles = size_t{rows_.sequences} * std::max(1u, shape_.experts_used);
    return StepGraph::tensors_max(tensors(), singles, rows_.lanes,
                                  size_t{rows_.lanes} * shape_.experts);
}

// A step that no real one exceeds: all sequences advance at the end of their context, in lanes as
// far as there are any if `wide`, and all rows choose the same experts.
ComputeStep StepRunner::worst_step(uint32_t stage, bool wide) {
    ComputeStep step;
    step.stage = stage;
    step.wants_guesses = true;
    for (uint32_t s = 0; s < rows_.sequences; s++) {
        Pass& pass = passes_[s];
        pass = {};
        bool chunk = wide && s < rows_.lanes && rows_.chunk_tokens > 1;
        pass.rows = chunk ? rows_.chunk_tokens : 1;
        pass.row = chunk ? rows_.lane_row(s) : s;
        pass.first_position = rows_.context - pass.rows;
        pass.wants_logits = true;
        if (chunk)
            pass.lane = s;
        step.advancing.push_back(SeqIndex(s));
        if (stage == 0)
            step.passes.push_back({SeqIndex(s), std::vector<TokenId>(pass.rows, 0)});
        if (stage == 0)
            continue;
        bool collapsed = chunk && stage == tensors().moe_layers() && tensors().last_layer_is_moe();
        if (collapsed) {
            pass.row += pass.rows - 1;
            pass.rows = 1;
        }
        for (uint32_t rank = 0; rank < shape_.experts_used; rank++) {
            auto begin = static_cast<uint32_t>(pass.choices.size());
            for (uint32_t row = 0; row < pass.rows; row++)
                pass.choices.push_back({row, rank});
            pass.route.push_back({ExpertIndex(rank), begin, begin + pass.rows});
        }
    }
    for (uint32_t rank = 0; stage > 0 && rank < shape_.experts_used; rank++) {
        for (uint32_t s = 0; s < rows_.sequences; s++)
            step.uses.push_back({SeqIndex(s), ExpertIndex(rank), SlotIndex(0)});
    }
    return step;
}

template <class Use>
void StepRunner::for_worst_graphs(Use use) {
    StepTensors all = tensors();
    for (bool wide : {false, true}) {
        for (uint32_t stage = 0; stage <= all.moe_layers(); stage++) {
            ComputeStep step = worst_step(stage, wide);
            ggml_reset(graph_context_.get());
            StepGraph graph(all, graph_context_.get(), step, passes_);
            use(graph.graph(), wide);
        }
    }
    for (Pass& pass : passes_)
        pass = {};
}

ComputeMemory StepRunner::measure() {
    ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(device_);
    ComputeMemory memory;
    memory.resident = weights_.bytes(type);
    memory.kv = kv_.store().bytes(type);
    memory.activations = activations_.store().bytes(type) +
                         sizeof(float) * uint64_t{shape_.vocabulary} * rows_.sequences +
                         host_row_bytes(shape_, rows_, options_.guessed_layers);
    weights_.pretend();
    kv_.store().pretend();
    activations_.store().pretend();
    slots_.pretend();
    std::array<uint64_t, 2> largest{};
    for_worst_graphs([&](ggml_cgraph* graph, bool wide) {
        size_t bytes = 0;
        ggml_gallocr_reserve_n_size(allocators_[wide].get(), graph, nullptr, nullptr, &bytes);
        largest[wide] = std::max<uint64_t>(largest[wide], bytes);
    });
    // Other mixes of rows can leave other gaps between tensors; an eighth covers them.
    for (uint64_t bytes : largest)
        memory.graph += bytes + bytes / 8;
    memory.graph += 3 * graph_bookkeeping_bytes(graph_tensors_max());
    WorkBounds work = work_bounds(shape_, rows_, options_.threads);
    memory.work = work.fixed;
    memory.work_per_slot = work.per_slot;
    return memory;
}

Status StepRunner::load(const ModelFile& file, void* slot_base, const Clock& clock,
                        const GgmlCompute::Progress& progress) {
    clock_ = &clock;
    Result<GgmlPtr<ggml_backend>> backend = open_cpu_backend(options_.threads);
    if (!backend)
        return std::unexpected(backend.error());
    backend_ = std::move(*backend);
    ggml_backend_buffer_type_t type = ggml_backend_dev_buffer_type(device_);
    if (Status ok = kv_.store().allocate(type, "the attention memory (KV cache)"); !ok)
        return ok;
    ggml_backend_buffer_clear(kv_.store().buffer(), 0);
    if (Status ok = activations_.store().allocate(type, "activations"); !ok)
        return ok;
    // Rows that no step has written yet may be read (and ignored); zeros keep them harmless.
    ggml_backend_buffer_clear(activations_.store().buffer(), 0);
    if (Status ok = slots_.attach(device_, slot_base); !ok)
        return ok;
    if (Status ok = weights_.load(file, type, progress); !ok)
        return ok;
    bool reserved = true;
    for_worst_graphs([&](ggml_cgraph* graph, bool wide) {
        reserved = reserved && ggml_gallocr_reserve(allocators_[wide].get(), graph);
    });
    if (!reserved)
        return fail(ErrorCode::kBudget, "no memory for the intermediate tensors of a step",
                    "choose a smaller chunk, fewer sequences or fewer prefill lanes");
    for (std::vector<float>& row : logits_)
        row.assign(shape_.vocabulary, 0.0f);
    return {};
}

std::span<const float> StepRunner::logits(SeqIndex seq) const {
    BEVY_ASSERT(seq.value < logits_.size());
    return logits_[seq.value];
}

void StepRunner::abandon(SeqIndex seq) {
    BEVY_ASSERT(seq.value < passes_.size());
    end_pass(passes_[seq.value]);
}

void StepRunner::begin_passes(const ComputeStep& step) {
    BEVY_ASSERT(step.passes.size() == step.advancing.size());
    for (size_t i = 0; i < step.passes.size(); i++) {
        const PassInput& input = step.passes[i];
        BEVY_ASSERT(input.seq == step.advancing[i]);
        Pass& pass = passes_[input.seq.value];
        // A request that was given up may have left a pass behind.
        end_pass(pass);
        auto tokens = static_cast<uint32_t>(input.tokens.size());
        BEVY_ASSERT(tokens >= 1 && tokens <= rows_.chunk_tokens);
        BEVY_ASSERT(input.first_position <= rows_.context - tokens);
        for (TokenId token : input.tokens)
            BEVY_ASSERT(token >= 0 && static_cast<uint32_t>(token) < shape_.vocabulary);
        pass.active = true;
        pass.wants_logits = input.wants_logits;
        pass.first_position = input.first_position;
        pass.rows = tokens;
        pass.row = input.seq.value;
        if (tokens == 1)
            continue;
        BEVY_ASSERT(!free_lanes_.empty());
        pass.lane = free_lanes_.back();
        free_lanes_.pop_back();
        pass.row = rows_.lane_row(*pass.lane);
        activations_.fill_masks(*pass.lane, input.first_position, tokens);
    }
}

void StepRunner::end_pass(Pass& pass) {
    if (pass.lane)
        free_lanes_.push_back(*pass.lane);
    pass.active = false;
    pass.next_stage = 0;
    pass.lane.reset();
    pass.route.clear();
    pass.choices.clear();
}

void StepRunner::check(const ComputeStep& step) {
    BEVY_ASSERT(step.stage <= weights_.moe_blocks().size());
    BEVY_ASSERT(step.stage > 0 || step.uses.empty());
    for (const ExpertUse& use : step.uses) {
        BEVY_ASSERT(use.seq.value < passes_.size() && use.slot.value < slot_count_);
        const Pass& pass = passes_[use.seq.value];
        BEVY_ASSERT(pass.active && pass.next_stage == step.stage);
    }
    for (size_t i = 0; i < step.advancing.size(); i++) {
        BEVY_ASSERT(step.advancing[i].value < passes_.size());
        BEVY_ASSERT(i == 0 || step.advancing[i - 1] < step.advancing[i]);
        const Pass& pass = passes_[step.advancing[i].value];
        BEVY_ASSERT(step.stage == 0 || (pass.active && pass.next_stage == step.stage));
    }
}

StepResult StepRunner::run(const ComputeStep& step) {
    StepResult result;
    result.started = clock_->now();
    check(step);
    if (step.stage == 0)
        begin_passes(step);
    bool wide = false;
    for (SeqIndex seq : step.advancing)
        wide = wide || passes_[seq.value].rows > 1;
    for (const ExpertUse& use : step.uses)
        wide = wide || passes_[use.seq.value].rows > 1;

    StepTensors all = tensors();
    ggml_reset(graph_context_.get());
    StepGraph graph(all, graph_context_.get(), step, passes_);
    for (SeqIndex seq : step.advancing) {
        for (const Pass::Chosen& chosen : passes_[seq.value].route)
            BEVY_ASSERT(chosen.done);
    }
    Status status = compute(graph, wide);
    if (status)
        status = read_outputs(step, graph, result);
    if (!status) {
        result.results.clear();
        result.error = status.error();
    }
    result.finished = clock_->now();
    return result;
}

Status StepRunner::compute(StepGraph& graph, bool wide) {
    if (!ggml_gallocr_alloc_graph(allocators_[wide].get(), graph.graph()))
        return fail(ErrorCode::kBudget, "no memory for the intermediate tensors of a step");
    activations_.upload_lists();
    ggml_status status = ggml_backend_graph_compute(backend_.get(), graph.graph());
    if (status != GGML_STATUS_SUCCESS)
        return fail(ErrorCode::kIo, std::string("ggml's backend failed to run a step: ") +
                                        ggml_status_to_string(status));
    return {};
}

Status StepRunner::read_outputs(const ComputeStep& step, const StepGraph& graph,
                                StepResult& result) {
    const uint32_t used = shape_.experts_used;
    const StepTensors all = tensors();
    const bool last_router = step.stage + 1 == all.moe_layers() && all.last_layer_is_moe();
    for (SeqIndex seq : step.advancing)
        result.results.push_back({seq, {}});
    for (const StepGraph::GroupOutput& output : graph.outputs()) {
        Result<std::vector<ExpertIndex>> selected = read_choices(output.selected);
        if (!selected)
            return std::unexpected(selected.error());
        for (size_t i = 0; i < output.seqs.size(); i++) {
            SeqIndex seq = output.seqs[i];
            Pass& pass = passes_[seq.value];
            auto at = std::ranges::find(result.results, seq, &SeqResult::seq);
            pass.next_stage = step.stage + 1;
            if (step.stage == all.moe_layers() || (last_router && !pass.wants_logits)) {
                if (output.logits && pass.wants_logits)
                    ggml_backend_tensor_get(output.logits, logits_[seq.value].data(),
                                            i * output.logits->nb[1],
                                            shape_.vocabulary * sizeof(float));
                end_pass(pass);
                continue;
            }
            if (last_router) {  // only the last row goes on
                pass.row += pass.rows - 1;
                pass.first_position += pass.rows - 1;
                pass.rows = 1;
            }
            read_route(std::span(*selected).subspan(i * used, size_t{pass.rows} * used), pass, *at);
        }
        for (const ggml_tensor* layer : output.guesses) {
            Result<std::vector<ExpertIndex>> guesses = read_choices(layer);
            if (!guesses)
                return std::unexpected(guesses.error());
            for (size_t i = 0; i < output.seqs.size(); i++) {
                auto at = std::ranges::find(result.results, output.seqs[i], &SeqResult::seq);
                at->guesses.append_range(std::span(*guesses).subspan(i * used, used));
            }
        }
    }
    return {};
}

// What a router chose, row by row; nothing without a tensor.
Result<std::vector<ExpertIndex>> StepRunner::read_choices(const ggml_tensor* selected) const {
    std::vector<ExpertIndex> choices;
    std::vector<int32_t> row(shape_.experts_used);
    const int64_t rows = selected ? selected->ne[1] : 0;
    choices.reserve(static_cast<size_t>(rows) * row.size());
    for (int64_t i = 0; i < rows; i++) {
        ggml_backend_tensor_get(selected, row.data(), static_cast<size_t>(i) * selected->nb[1],
                                row.size() * sizeof(int32_t));
        for (int32_t expert : row) {
            if (expert < 0 || static_cast<uint32_t>(expert) >= shape_.experts)
                return fail(ErrorCode::kCorruptFile, "a router chose an expert that does not exist",
                            "the model's weights are damaged");
            choices.emplace_back(static_cast<uint32_t>(expert));
        }
    }
    return choices;
}

// `selected`: the choices of the pass's rows, row by row.
void StepRunner::read_route(std::span<const ExpertIndex> selected, Pass& pass, SeqResult& result) {
    const uint32_t used = shape_.experts_used;
    pass.route.clear();
    pass.choices.resize(selected.size());
    if (pass.rows == 1) {
        for (uint32_t rank = 0; rank < used; rank++) {
            pass.choices[rank] = {0, rank};
            pass.route.push_back({selected[rank], rank, rank + 1});
        }
    } else {
        std::ranges::fill(rows_of_expert_, 0);
        for (ExpertIndex expert : selected)
            rows_of_expert_[expert.value]++;
        uint32_t begin = 0;
        for (uint32_t expert = 0; expert < shape_.experts; expert++) {
            uint32_t rows = rows_of_expert_[expert];
            if (rows > 0)
                pass.route.push_back({ExpertIndex(expert), begin, begin + rows});
            rows_of_expert_[expert] = begin;
            begin += rows;
        }
        for (size_t i = 0; i < selected.size(); i++)
            pass.choices[rows_of_expert_[selected[i].value]++] = {static_cast<uint32_t>(i) / used,
                                                                  static_cast<uint32_t>(i) % used};
    }
    for (const Pass::Chosen& chosen : pass.route)
        result.route.push_back({chosen.expert, chosen.end - chosen.begin});
}

}  // namespace bevy
