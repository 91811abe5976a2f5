// Checks the table of column_limits.cc against the ggml that is installed, on the CPU that runs the
// test.
#include "compute/column_limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/prng.h"
#include "compute/backend.h"
#include "compute/tensor_store.h"

namespace bevy {
namespace {

constexpr ggml_type kTypes[] = {
    GGML_TYPE_F32,     GGML_TYPE_F16,    GGML_TYPE_BF16,   GGML_TYPE_Q4_0,    GGML_TYPE_Q4_1,
    GGML_TYPE_Q5_0,    GGML_TYPE_Q5_1,   GGML_TYPE_Q8_0,   GGML_TYPE_MXFP4,   GGML_TYPE_Q2_K,
    GGML_TYPE_Q3_K,    GGML_TYPE_Q4_K,   GGML_TYPE_Q5_K,   GGML_TYPE_Q6_K,    GGML_TYPE_IQ1_S,
    GGML_TYPE_IQ1_M,   GGML_TYPE_IQ2_S,  GGML_TYPE_IQ2_XS, GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ3_S,
    GGML_TYPE_IQ3_XXS, GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS};

constexpr int64_t kColumns = 40;

std::vector<float> random_floats(Prng& random, int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values)
        value = static_cast<float>(static_cast<int64_t>(random.below(2001)) - 1000) / 500.0f;
    return values;
}

struct Matrix {
    ggml_type type;
    int64_t in;
    int64_t out;
    std::vector<char> bytes;
};

Matrix random_matrix(Prng& random, ggml_type type, int64_t in, int64_t out) {
    Matrix matrix{type, in, out,
                  std::vector<char>(ggml_row_size(type, in) * static_cast<size_t>(out))};
    std::vector<float> values = random_floats(random, in * out);
    std::vector<float> importance(static_cast<size_t>(in), 1.0f);
    ggml_quantize_chunk(type, values.data(), matrix.bytes.data(), 0, out, in, importance.data());
    return matrix;
}

// matrix times the columns of x; `by_id`: as one expert of three, all columns choosing it.
std::vector<float> multiply(ggml_backend_t backend, const Matrix& matrix, std::span<const float> x,
                            bool by_id) {
    TensorStore store(8);
    ggml_context* ctx = store.context();
    const auto columns = static_cast<int64_t>(x.size()) / matrix.in;
    constexpr int64_t kExperts = 3;
    ggml_tensor* weights =
        ggml_new_tensor_3d(ctx, matrix.type, matrix.in, matrix.out, by_id ? kExperts : 1);
    ggml_tensor* input = by_id ? ggml_new_tensor_3d(ctx, GGML_TYPE_F32, matrix.in, 1, columns)
                               : ggml_new_tensor_2d(ctx, GGML_TYPE_F32, matrix.in, columns);
    ggml_tensor* ids = ggml_new_tensor_2d(ctx, GGML_TYPE_I32, 1, columns);
    ggml_tensor* output =
        by_id ? ggml_mul_mat_id(ctx, weights, input, ids) : ggml_mul_mat(ctx, weights, input);
    EXPECT_TRUE(store.allocate(ggml_backend_get_default_buffer_type(backend), "a test"));
    for (int64_t i = 0; i < weights->ne[2]; i++)
        ggml_backend_tensor_set(weights, matrix.bytes.data(),
                                static_cast<size_t>(i) * matrix.bytes.size(), matrix.bytes.size());
    ggml_backend_tensor_set(input, x.data(), 0, x.size_bytes());
    std::vector<int32_t> chosen(static_cast<size_t>(columns), 1);
    ggml_backend_tensor_set(ids, chosen.data(), 0, chosen.size() * sizeof(int32_t));

    std::vector<char> memory(ggml_tensor_overhead() * 16 + ggml_graph_overhead());
    GgmlPtr<ggml_context> graph_context(ggml_init({memory.size(), memory.data(), true}));
    ggml_cgraph* graph = ggml_new_graph(graph_context.get());
    ggml_build_forward_expand(graph, output);
    EXPECT_EQ(ggml_backend_graph_compute(backend, graph), GGML_STATUS_SUCCESS);
    std::vector<float> result(static_cast<size_t>(matrix.out * columns));
    ggml_backend_tensor_get(output, result.data(), 0, result.size() * sizeof(float));
    return result;
}

class ColumnLimits : public ::testing::TestWithParam<ggml_type> {};

TEST_P(ColumnLimits, EveryColumnHasTheBitsOfItsOwnProduct) {
    const ggml_type type = GetParam();
    const auto limit = std::min<int64_t>(exact_columns_max(type), kColumns);
    auto backend = open_cpu_backend(2);
    ASSERT_TRUE(backend) << backend.error().text();
    Prng random(static_cast<uint64_t>(type) + 1);
    const int64_t block = ggml_blck_size(type);
    for (int64_t in : {block == 1 ? int64_t{50} : 2 * block, int64_t{768}}) {
        for (int64_t out : {1, 7, 61}) {
            Matrix matrix = random_matrix(random, type, in, out);
            std::vector<float> x = random_floats(random, in * kColumns);
            std::vector<float> alone;
            for (int64_t column = 0; column < limit; column++) {
                std::vector<float> y =
                    multiply(backend->get(), matrix, std::span(x).subspan(column * in, in), false);
                alone.insert(alone.end(), y.begin(), y.end());
            }
            for (int64_t columns = 1; columns <= limit; columns += columns < 18 ? 1 : 11) {
                for (bool by_id : {false, true}) {
                    std::vector<float> y =
                        multiply(backend->get(), matrix, std::span(x).first(columns * in), by_id);
                    ASSERT_EQ(std::memcmp(y.data(), alone.data(), y.size() * sizeof(float)), 0)
                        << in << "x" << out << ", " << columns << " columns, by id: " << by_id;
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, ColumnLimits, ::testing::ValuesIn(kTypes),
                         [](const auto& test) { return std::string(ggml_type_name(test.param)); });

TEST(ColumnLimits, UnknownTypesAreComputedOneByOne) {
    EXPECT_EQ(exact_columns_max(GGML_TYPE_TQ1_0), 1u);
}

}  // namespace
}  // namespace bevy
