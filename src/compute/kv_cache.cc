#include "compute/kv_cache.h"

#include <array>
#include <string>

#include "base/assert.h"

namespace bevy {

namespace {

struct KvTypeName {
    std::string_view name;
    ggml_type type;
};

constexpr std::array kKvTypes = {
    KvTypeName{"f32", GGML_TYPE_F32},       KvTypeName{"f16", GGML_TYPE_F16},
    KvTypeName{"bf16", GGML_TYPE_BF16},     KvTypeName{"q8_0", GGML_TYPE_Q8_0},
    KvTypeName{"q4_0", GGML_TYPE_Q4_0},     KvTypeName{"q4_1", GGML_TYPE_Q4_1},
    KvTypeName{"q5_0", GGML_TYPE_Q5_0},     KvTypeName{"q5_1", GGML_TYPE_Q5_1},
    KvTypeName{"iq4_nl", GGML_TYPE_IQ4_NL},
};

Result<ggml_type> parse_kv_type(std::string_view flag, std::string_view name, uint32_t head_size) {
    std::string names;
    for (const KvTypeName& row : kKvTypes) {
        if (row.name == name) {
            if (head_size % static_cast<uint32_t>(ggml_blck_size(row.type)) == 0)
                return row.type;
            return fail(ErrorCode::kUnsupported,
                        std::string(flag) + " " + std::string(name) + " stores blocks of " +
                            std::to_string(ggml_blck_size(row.type)) +
                            " values, but this model's attention heads have " +
                            std::to_string(head_size),
                        "use f16, bf16 or f32");
        }
        names += (names.empty() ? "" : ", ") + std::string(row.name);
    }
    return fail(ErrorCode::kInvalidArgument,
                std::string(flag) + " does not know the type '" + std::string(name) + "'",
                "supported: " + names);
}

}  // namespace

Result<KvTypes> parse_kv_types(std::string_view k, std::string_view v, const ModelShape& shape) {
    Result<ggml_type> type_k = parse_kv_type("--cache-type-k", k, shape.head_size_k);
    if (!type_k)
        return std::unexpected(type_k.error());
    Result<ggml_type> type_v = parse_kv_type("--cache-type-v", v, shape.head_size_v);
    if (!type_v)
        return std::unexpected(type_v.error());
    return KvTypes{*type_k, *type_v};
}

KvCache::KvCache(const ModelShape& shape, KvTypes types, uint32_t sequences, uint32_t context)
    : store_(size_t{2} * shape.layers),
      context_(context),
      heads_(shape.heads_kv),
      head_size_k_(shape.head_size_k),
      head_size_v_(shape.head_size_v) {
    int64_t rows = static_cast<int64_t>(sequences) * context;
    for (uint32_t block = 0; block < shape.layers; block++) {
        k_.push_back(
            ggml_new_tensor_2d(store_.context(), types.k, int64_t{head_size_k_} * heads_, rows));
        v_.push_back(
            ggml_new_tensor_2d(store_.context(), types.v, int64_t{head_size_v_} * heads_, rows));
    }
}

ggml_tensor* KvCache::view(ggml_context* ctx, ggml_tensor* matrix, uint32_t head_size, uint32_t seq,
                           uint32_t begin, uint32_t end) const {
    BEVY_ASSERT(begin < end && end <= context_);
    return ggml_view_3d(ctx, matrix, head_size, end - begin, heads_, matrix->nb[1],
                        ggml_row_size(matrix->type, head_size),
                        static_cast<size_t>(row(seq, begin)) * matrix->nb[1]);
}

}  // namespace bevy
