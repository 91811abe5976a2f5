#include "compute/step_graph.h"

#include <algorithm>

#include "base/assert.h"
#include "compute/column_limits.h"

namespace bevy {

namespace {

// Rows of different experts of one phase: one product over all slots, each row naming its slot.
class PairProducts final : public ExpertProducts {
public:
    PairProducts(const StepTensors& tensors, GraphBuilder& builder, uint32_t layer, uint32_t phase,
                 ggml_tensor* slots, ggml_tensor* experts)
        : t_(tensors),
          b_(builder),
          layer_(layer),
          phase_(phase),
          slots_(slots),
          experts_(experts) {}

    ggml_tensor* product(uint32_t slice, ggml_tensor* x) override {
        return ggml_mul_mat_id(b_.ctx, t_.slots.all(layer_, slice, phase_), x, slots_);
    }
    ggml_tensor* add_bias(const char* suffix, ggml_tensor* y) override {
        uint32_t block = t_.weights.moe_blocks()[layer_].block;
        return ggml_add_id(b_.ctx, y, b_.weight(block, suffix), experts_);
    }

private:
    const StepTensors& t_;
    GraphBuilder& b_;
    uint32_t layer_;
    uint32_t phase_;
    ggml_tensor* slots_;    // I32 [1, rows]
    ggml_tensor* experts_;  // I32 [1, rows]
};

// Rows of one expert in one slot.
class ChunkProducts final : public ExpertProducts {
public:
    ChunkProducts(const StepTensors& tensors, GraphBuilder& builder, uint32_t layer,
                  const ExpertUse& use)
        : t_(tensors), b_(builder), layer_(layer), use_(use) {}

    ggml_tensor* product(uint32_t slice, ggml_tensor* x) override {
        return ggml_mul_mat(b_.ctx,
                            t_.slots.one(b_.ctx, layer_, slice, use_.expert, use_.slot.value), x);
    }
    ggml_tensor* add_bias(const char* suffix, ggml_tensor* y) override {
        ggml_tensor* biases = b_.weight(t_.weights.moe_blocks()[layer_].block, suffix);
        return ggml_add(
            b_.ctx, y,
            ggml_view_1d(b_.ctx, biases, biases->ne[0], use_.expert.value * biases->nb[1]));
    }

private:
    const StepTensors& t_;
    GraphBuilder& b_;
    uint32_t layer_;
    const ExpertUse& use_;
};

uint32_t expert_columns_max(const MoeBlock& block) {
    uint32_t columns = kColumnsUnlimited;
    for (const ExpertMatrix& matrix : block.slices)
        columns = std::min(columns, exact_columns_max(matrix.type));
    return columns;
}

struct StepSize {
    size_t singles = 0;
    size_t chunks = 0;
    size_t chunk_uses = 0;
};

StepSize size_of(const ComputeStep& step, std::span<const Pass> passes) {
    StepSize size;
    for (SeqIndex seq : step.advancing)
        (passes[seq.value].rows == 1 ? size.singles : size.chunks)++;
    size_t pairs = 0;
    for (const ExpertUse& use : step.uses)
        (passes[use.seq.value].rows == 1 ? pairs : size.chunk_uses)++;
    size.singles = std::max(size.singles, pairs);
    return size;
}

}  // namespace

size_t StepGraph::tensors_max(const StepTensors& tensors, size_t singles, size_t chunks,
                              size_t chunk_uses) {
    size_t blocks = 1;
    for (uint32_t stage = 0; stage <= tensors.moe_layers(); stage++)
        blocks =
            std::max<size_t>(blocks, tensors.last_block(stage) - tensors.first_block(stage) + 1);
    constexpr size_t kPerBlock = 96;        // tensors of one block's dense part for one group
    constexpr size_t kPerSingleBlock = 64;  // attention views, products split down to one column
    constexpr size_t kPerProducts = 40;     // one batch of expert products
    constexpr size_t kPerGuess = 48;        // one router, shared experts in front of it included
    constexpr size_t kPerSingleGuess = 16;  // its products split down to one column
    size_t sum = 8 * size_t{tensors.shape.experts_used} + 64;
    return (chunks + 1) * (blocks * kPerBlock + sum) + singles * (blocks * kPerSingleBlock) +
           (chunk_uses + singles + 1) * kPerProducts +
           tensors.guessed_layers * (kPerGuess + singles * kPerSingleGuess);
}

StepGraph::StepGraph(const StepTensors& tensors, ggml_context* ctx, const ComputeStep& step,
                     std::span<Pass> passes)
    : t_(tensors),
      ctx_(ctx),
      graph_([&] {
          StepSize size = size_of(step, passes);
          return ggml_new_graph_custom(
              ctx, tensors_max(tensors, size.singles, size.chunks, size.chunk_uses), false);
      }()),
      builder_(ctx, graph_, tensors.shape, tensors.weights, tensors.kv) {
    t_.activations.clear_lists();
    add_experts(step, passes);
    add_singles(step, passes);
    for (size_t i = 0; i < step.advancing.size(); i++) {
        Pass& pass = passes[step.advancing[i].value];
        if (pass.rows > 1)
            add_chunk(step, i, pass);
    }
}

void StepGraph::add_experts(const ComputeStep& step, std::span<Pass> passes) {
    std::vector<Pair> pairs;
    for (const ExpertUse& use : step.uses) {
        Pass& pass = passes[use.seq.value];
        Pass::Chosen* chosen = pass.find(use.expert);
        BEVY_ASSERT(chosen != nullptr && !chosen->done);
        chosen->done = true;
        if (pass.rows > 1) {
            add_chunk_use(step.stage - 1, use, pass);
            continue;
        }
        for (uint32_t i = chosen->begin; i < chosen->end; i++)
            pairs.push_back({pass.row + pass.choices[i].row, pass.choices[i].rank, use});
    }
    if (pairs.empty())
        return;
    // Uses are sorted by expert, so the rows of one expert are neighbours: the n-th of them goes
    // into batch n / limit of the expert's phase.
    const uint32_t layer = step.stage - 1;
    uint32_t limit = expert_columns_max(t_.weights.moe_blocks()[layer]);
    std::vector<std::vector<std::vector<Pair>>> batches(t_.slots.phases(layer));
    uint32_t nth = 0;
    for (size_t i = 0; i < pairs.size(); i++) {
        nth = i > 0 && pairs[i].use.expert == pairs[i - 1].use.expert ? nth + 1 : 0;
        std::vector<std::vector<Pair>>& of_phase =
            batches[t_.slots.phase(layer, pairs[i].use.expert)];
        if (nth / limit >= of_phase.size())
            of_phase.emplace_back();
        of_phase[nth / limit].push_back(pairs[i]);
    }
    for (const std::vector<std::vector<Pair>>& of_phase : batches) {
        for (const std::vector<Pair>& batch : of_phase)
            add_pairs(layer, batch);
    }
}

void StepGraph::add_pairs(uint32_t layer, std::span<const Pair> pairs) {
    const int64_t used = t_.shape.experts_used;
    const auto count = static_cast<int64_t>(pairs.size());
    std::vector<int32_t> rows, slots, experts;
    std::vector<int64_t> places;
    for (const Pair& pair : pairs) {
        rows.push_back(static_cast<int32_t>(pair.row));
        slots.push_back(static_cast<int32_t>(pair.use.slot.value));
        experts.push_back(static_cast<int32_t>(pair.use.expert.value));
        places.push_back(pair.row * used + pair.rank);
    }
    Activations& a = t_.activations;
    auto column = [&](std::span<const int32_t> values) {
        return ggml_reshape_2d(ctx_, a.list(ctx_, values), 1, count);
    };
    PairProducts products(t_, builder_, layer, t_.slots.phase(layer, pairs[0].use.expert),
                          column(slots), column(experts));
    ggml_tensor* x = ggml_get_rows(ctx_, a.input, a.list(ctx_, rows));
    x = ggml_reshape_3d(ctx_, x, t_.shape.embedding, 1, count);
    ggml_tensor* y = t_.graphs.expert(builder_, products, x);
    y = ggml_reshape_2d(ctx_, y, t_.shape.embedding, count);
    builder_.expand(ggml_set_rows(ctx_, a.outputs, y, a.list(ctx_, places)));
}

void StepGraph::add_chunk_use(uint32_t layer, const ExpertUse& use, const Pass& pass) {
    const int64_t used = t_.shape.experts_used;
    const Pass::Chosen* chosen = const_cast<Pass&>(pass).find(use.expert);
    std::vector<int32_t> rows;
    std::vector<int64_t> places;
    for (uint32_t i = chosen->begin; i < chosen->end; i++) {
        uint32_t row = pass.row + pass.choices[i].row;
        rows.push_back(static_cast<int32_t>(row));
        places.push_back(row * used + pass.choices[i].rank);
    }
    Activations& a = t_.activations;
    ChunkProducts products(t_, builder_, layer, use);
    ggml_tensor* x = ggml_get_rows(ctx_, a.input, a.list(ctx_, rows));
    ggml_tensor* y = t_.graphs.expert(builder_, products, x);
    builder_.expand(ggml_set_rows(ctx_, a.outputs, y, a.list(ctx_, places)));
}

void StepGraph::add_singles(const ComputeStep& step, std::span<Pass> passes) {
    const uint32_t stage = step.stage;
    Activations& a = t_.activations;
    GroupOutput output;
    std::vector<uint32_t> rows;
    std::vector<int32_t> tokens, positions;
    std::vector<int64_t> kv_rows;
    bool all_end = stage + 1 == t_.moe_layers() && t_.last_layer_is_moe();
    for (size_t i = 0; i < step.advancing.size(); i++) {
        SeqIndex seq = step.advancing[i];
        const Pass& pass = passes[seq.value];
        if (pass.rows != 1)
            continue;
        output.seqs.push_back(seq);
        rows.push_back(pass.row);
        singles_.push_back({seq.value, pass.first_position});
        positions.push_back(static_cast<int32_t>(pass.first_position));
        kv_rows.push_back(t_.kv.row(seq.value, pass.first_position));
        if (stage == 0)
            tokens.push_back(step.passes[i].tokens[0]);
        all_end = all_end && !pass.wants_logits;
    }
    if (rows.empty())
        return;
    RowGroup group;
    group.rows = static_cast<uint32_t>(rows.size());
    group.singles = singles_;
    group.single_outputs = a.single_attention;
    if (t_.first_block(stage) < t_.last_block(stage)) {
        group.positions = a.list(ctx_, positions);
        group.kv_rows = a.list(ctx_, kv_rows);
    }
    builder_.set_group(&group);
    Rows set = any_rows(rows);
    ggml_tensor* x = stage == 0 ? t_.graphs.embed(builder_, a.list(ctx_, tokens)) : combine(set);
    x = dense_part(stage, x);
    if (stage == t_.moe_layers()) {
        output.logits = head(x);
    } else if (!all_end) {  // else only the keys and values count, and nothing else is computed
        output.selected = route(stage, set, x);
        if (step.wants_guesses)
            output.guesses = guess(stage, x);
    }
    builder_.set_group(nullptr);
    outputs_.push_back(std::move(output));
}

void StepGraph::add_chunk(const ComputeStep& step, size_t index, Pass& pass) {
    const uint32_t stage = step.stage;
    const SeqIndex seq = step.advancing[index];
    Activations& a = t_.activations;
    RowGroup group;
    group.rows = pass.rows;
    group.seq = seq.value;
    group.first_position = pass.first_position;
    if (t_.first_block(stage) < t_.last_block(stage)) {
        std::vector<int32_t> positions;
        std::vector<int64_t> kv_rows;
        for (uint32_t i = 0; i < pass.rows; i++) {
            positions.push_back(static_cast<int32_t>(pass.first_position + i));
            kv_rows.push_back(t_.kv.row(seq.value, pass.first_position + i));
        }
        group.positions = a.list(ctx_, positions);
        group.kv_rows = a.list(ctx_, kv_rows);
        group.mask = a.mask(ctx_, *pass.lane, pass.first_position, pass.rows, 0);
        if (t_.shape.sliding_window)
            group.window_mask =
                a.mask(ctx_, *pass.lane, pass.first_position, pass.rows, t_.shape.sliding_window);
    }
    builder_.set_group(&group);
    Rows set = neighbours(pass.row, pass.rows);
    ggml_tensor* x = stage == 0 ? t_.graphs.embed(builder_, a.list(ctx_, step.passes[index].tokens))
                                : combine(set);
    x = dense_part(stage, x);
    GroupOutput output;
    output.seqs.push_back(seq);
    const bool at_end = stage == t_.moe_layers();
    const bool last_router = stage + 1 == t_.moe_layers() && t_.last_layer_is_moe();
    if (at_end || last_router) {
        // From here on only the last row matters, and only if somebody wants its logits.
        x = ggml_view_2d(ctx_, x, x->ne[0], 1, x->nb[1],
                         static_cast<size_t>(pass.rows - 1) * x->nb[1]);
        set = neighbours(pass.row + pass.rows - 1, 1);
    }
    if (at_end && pass.wants_logits)
        output.logits = head(x);
    else if (!at_end && (!last_router || pass.wants_logits))
        output.selected = route(stage, set, x);
    builder_.set_group(nullptr);
    outputs_.push_back(std::move(output));
}

ggml_tensor* StepGraph::combine(const Rows& rows) {
    const int64_t embedding = t_.shape.embedding;
    const int64_t used = t_.shape.experts_used;
    const int64_t count = rows.count;
    Activations& a = t_.activations;
    ggml_tensor* by_row =
        ggml_reshape_2d(ctx_, a.outputs, embedding * used, a.outputs->ne[1] / used);
    ggml_tensor* outputs = ggml_reshape_3d(ctx_, gather(by_row, rows), embedding, used, count);
    ggml_tensor* weights = ggml_reshape_3d(ctx_, gather(a.weights, rows), 1, used, count);
    ggml_tensor* weighted = ggml_mul(ctx_, outputs, weights);
    ggml_tensor* sum = nullptr;
    for (int64_t rank = 0; rank < used; rank++) {
        ggml_tensor* part = ggml_view_2d(ctx_, weighted, embedding, count, weighted->nb[2],
                                         static_cast<size_t>(rank) * weighted->nb[1]);
        sum = sum ? ggml_add(ctx_, sum, part) : part;
    }
    return ggml_add(ctx_, sum, gather(a.residual, rows));
}

ggml_tensor* StepGraph::dense_part(uint32_t stage, ggml_tensor* x) {
    const uint32_t end = t_.last_block(stage);
    for (uint32_t block = t_.first_block(stage); block < end; block++) {
        x = t_.graphs.attention(builder_, block, x);
        bool routed = stage < t_.moe_layers() && block + 1 == end;
        if (!routed)
            x = t_.graphs.dense_feed_forward(builder_, block, x);
    }
    return x;
}

ggml_tensor* StepGraph::route(uint32_t stage, const Rows& rows, ggml_tensor* x) {
    Activations& a = t_.activations;
    Routed routed = t_.graphs.route(builder_, t_.weights.moe_blocks()[stage].block, x);
    scatter(routed.residual, a.residual, rows);
    scatter(routed.input, a.input, rows);
    scatter(routed.weights, a.weights, rows);
    return selected(routed);
}

std::vector<ggml_tensor*> StepGraph::guess(uint32_t stage, ggml_tensor* x) {
    std::vector<ggml_tensor*> guesses;
    const uint32_t end = std::min(t_.moe_layers(), stage + 1 + t_.guessed_layers);
    for (uint32_t layer = stage + 1; layer < end; layer++) {
        const uint32_t block = t_.weights.moe_blocks()[layer].block;
        guesses.push_back(selected(t_.graphs.route(builder_, block, x)));
        builder_.expand(guesses.back());
    }
    return guesses;
}

ggml_tensor* StepGraph::selected(const Routed& routed) const {
    // Read after the run, so its memory must last that long.
    ggml_tensor* memory = routed.selected->view_src ? routed.selected->view_src : routed.selected;
    ggml_set_output(memory);
    return routed.selected;
}

ggml_tensor* StepGraph::head(ggml_tensor* x) {
    ggml_tensor* logits = t_.graphs.head(builder_, x);
    ggml_set_output(logits);
    builder_.expand(logits);
    return logits;
}

StepGraph::Rows StepGraph::any_rows(std::span<const uint32_t> rows) {
    const auto count = static_cast<uint32_t>(rows.size());
    bool adjacent = true;
    for (uint32_t i = 0; i < count; i++)
        adjacent = adjacent && rows[i] == rows[0] + i;
    if (adjacent)
        return neighbours(rows[0], count);
    std::vector<int32_t> ids(rows.begin(), rows.end());
    std::vector<int64_t> long_ids(rows.begin(), rows.end());
    return {0, count, t_.activations.list(ctx_, ids), t_.activations.list(ctx_, long_ids)};
}

ggml_tensor* StepGraph::gather(ggml_tensor* matrix, const Rows& rows) const {
    if (rows.ids)
        return ggml_get_rows(ctx_, matrix, rows.ids);
    return ggml_view_2d(ctx_, matrix, matrix->ne[0], rows.count, matrix->nb[1],
                        rows.first * matrix->nb[1]);
}

void StepGraph::scatter(ggml_tensor* values, ggml_tensor* matrix, const Rows& rows) const {
    ggml_tensor* stored = rows.ids ? ggml_set_rows(ctx_, matrix, values, rows.long_ids)
                                   : ggml_cpy(ctx_, values, gather(matrix, rows));
    ggml_build_forward_expand(graph_, stored);
}

}  // namespace bevy
