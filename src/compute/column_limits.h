// How many columns one matrix product may have so that each column's bits are the same as in a
// product of its own.
//
// Outputs must not depend on which sequences share a step. ggml's CPU backend computes the columns
// of most weight types one by one or in a way that rounds the same; for types with blocks of 256
// weights it switches to another kernel from eight columns on (in ggml_mul_mat_id: eight columns of
// one expert). column_limits_test.cc verifies this table on the machine it runs on.
#pragma once

#include <cstdint>

#include "ggml.h"

namespace bevy {

constexpr uint32_t kColumnsUnlimited = UINT32_MAX;

// The largest number of columns, at least 1. A type that is not in the table gets 1, which is
// always right and slow.
uint32_t exact_columns_max(ggml_type type);

}  // namespace bevy
