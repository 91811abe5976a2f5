#include "compute/graph_builder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "base/assert.h"
#include "compute/column_limits.h"

namespace bevy {

ggml_tensor* GraphBuilder::weight(std::string_view name) const {
    ggml_tensor* tensor = weights_.find(name);
    BEVY_ASSERT(tensor != nullptr);
    return tensor;
}

ggml_tensor* GraphBuilder::weight(uint32_t block, std::string_view suffix) const {
    ggml_tensor* tensor = weights_.find(block, suffix);
    BEVY_ASSERT(tensor != nullptr);
    return tensor;
}

ggml_tensor* GraphBuilder::product(ggml_tensor* matrix, ggml_tensor* x) const {
    // A chunk's product is the same whoever else computes; only single tokens need splitting.
    int64_t columns = x->ne[1];
    int64_t columns_max =
        group_ && group_->singles.empty() ? columns : exact_columns_max(matrix->type);
    if (columns <= columns_max)
        return ggml_mul_mat(ctx, matrix, x);
    ggml_tensor* all = nullptr;
    for (int64_t begin = 0; begin < columns; begin += columns_max) {
        int64_t count = std::min(columns_max, columns - begin);
        ggml_tensor* part =
            ggml_view_2d(ctx, x, x->ne[0], count, x->nb[1], static_cast<size_t>(begin) * x->nb[1]);
        ggml_tensor* result = ggml_mul_mat(ctx, matrix, part);
        all = all ? ggml_concat(ctx, all, result, 1) : result;
    }
    return all;
}

ggml_tensor* GraphBuilder::linear(uint32_t block, std::string_view name, ggml_tensor* x) const {
    std::array<char, 64> suffix;
    auto with = [&](const char* ending) {
        int length = std::snprintf(suffix.data(), suffix.size(), "%.*s.%s",
                                   static_cast<int>(name.size()), name.data(), ending);
        BEVY_ASSERT(length > 0 && static_cast<size_t>(length) < suffix.size());
        return std::string_view(suffix.data(), static_cast<size_t>(length));
    };
    ggml_tensor* y = product(weight(block, with("weight")), x);
    ggml_tensor* bias = weights_.find(block, with("bias"));
    return bias ? ggml_add(ctx, y, bias) : y;
}

ggml_tensor* GraphBuilder::rms_norm(ggml_tensor* x, ggml_tensor* scale) const {
    return ggml_mul(ctx, ggml_rms_norm(ctx, x, shape.norm_epsilon), scale);
}

ggml_tensor* GraphBuilder::rope(ggml_tensor* x) const {
    return ggml_rope_ext(ctx, x, group_->positions, nullptr,
                         static_cast<int>(shape.rope_dimensions), GGML_ROPE_TYPE_NEOX,
                         static_cast<int>(shape.rope_context_original), shape.rope_base,
                         shape.rope_scale, shape.rope_yarn_ext_factor, shape.rope_yarn_attn_factor,
                         shape.rope_yarn_beta_fast, shape.rope_yarn_beta_slow);
}

ggml_tensor* GraphBuilder::split_heads(ggml_tensor* x, uint32_t head_size, uint32_t heads) const {
    return ggml_reshape_3d(ctx, x, head_size, heads, x->ne[1]);
}

ggml_tensor* GraphBuilder::attend(const AttentionInput& in) const {
    auto rows_of = [&](ggml_tensor* x) {
        return ggml_reshape_2d(ctx, x, x->ne[0] * x->ne[1], x->ne[2]);
    };
    // Expanded here, so that the graph stores before anything below reads.
    expand(ggml_set_rows(ctx, kv_.k(in.block), rows_of(in.k), group_->kv_rows));
    expand(ggml_set_rows(ctx, kv_.v(in.block), rows_of(in.v), group_->kv_rows));
    return group_->singles.empty() ? attend_chunk(in) : attend_singles(in);
}

ggml_tensor* GraphBuilder::attend_singles(const AttentionInput& in) const {
    // One computation per sequence over exactly the positions it sees: no mask, and no number of
    // one sequence depends on how long another one is.
    int64_t width = int64_t{shape.head_size_v} * shape.heads;
    ggml_tensor* outputs = group_->single_outputs;
    for (uint32_t i = 0; i < group_->rows; i++) {
        const RowGroup::Single& single = group_->singles[i];
        uint32_t begin = attention_begin(single.position, in.window);
        uint32_t end = single.position + 1;
        ggml_tensor* q = ggml_view_3d(ctx, in.q, in.q->ne[0], 1, in.q->ne[1], in.q->nb[2],
                                      in.q->nb[1], i * in.q->nb[2]);
        ggml_tensor* result = ggml_flash_attn_ext(
            ctx, q, kv_.view_k(ctx, in.block, single.seq, begin, end),
            kv_.view_v(ctx, in.block, single.seq, begin, end), nullptr, in.scale, 0.0f, 0.0f);
        ggml_flash_attn_ext_add_sinks(result, in.sinks);
        result = ggml_reshape_2d(ctx, result, width, 1);
        if (group_->rows == 1)
            return result;
        ggml_tensor* place =
            ggml_view_2d(ctx, outputs, width, 1, outputs->nb[1], i * outputs->nb[1]);
        expand(ggml_cpy(ctx, result, place));
    }
    return ggml_view_2d(ctx, outputs, width, group_->rows, outputs->nb[1], 0);
}

ggml_tensor* GraphBuilder::attend_chunk(const AttentionInput& in) const {
    uint32_t begin = attention_begin(group_->first_position, in.window);
    uint32_t end = group_->first_position + group_->rows;
    ggml_tensor* result =
        ggml_flash_attn_ext(ctx, ggml_permute(ctx, in.q, 0, 2, 1, 3),
                            kv_.view_k(ctx, in.block, group_->seq, begin, end),
                            kv_.view_v(ctx, in.block, group_->seq, begin, end),
                            in.window ? group_->window_mask : group_->mask, in.scale, 0.0f, 0.0f);
    ggml_flash_attn_ext_add_sinks(result, in.sinks);
    return ggml_reshape_2d(ctx, result, int64_t{shape.head_size_v} * shape.heads, group_->rows);
}

void GraphBuilder::choose_experts(ggml_tensor* logits, const RouterRule& rule,
                                  Routed& routed) const {
    int64_t used = shape.experts_used;
    int64_t rows = logits->ne[1];
    ggml_tensor* scores = rule.softmax_first ? ggml_soft_max(ctx, logits) : logits;
    routed.selected = ggml_argsort_top_k(ctx, scores, static_cast<int>(used));
    ggml_tensor* weights =
        ggml_get_rows(ctx, ggml_reshape_3d(ctx, scores, 1, scores->ne[0], rows), routed.selected);
    weights = ggml_reshape_2d(ctx, weights, used, rows);
    if (rule.softmax_chosen)
        weights = ggml_soft_max(ctx, weights);
    if (rule.normalise_chosen) {
        // The floor is the smallest normal F16 number: no division by zero.
        ggml_tensor* sum = ggml_clamp(ctx, ggml_sum_rows(ctx, weights), 6.103515625e-5f, INFINITY);
        weights = ggml_div(ctx, weights, sum);
    }
    routed.weights = weights;
}

}  // namespace bevy
