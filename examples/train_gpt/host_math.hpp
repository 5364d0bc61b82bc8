// SPDX-License-Identifier: Apache-2.0
#pragma once

// The loops of the host operations, each over a range of rows, columns or elements, so that a team can share them.

#include <cstddef>
#include <cstdint>

#include "ops.hpp"

namespace train_gpt::host_math {

/// e^x to about two units in the last place; what would be subnormal is e^-87, what would overflow is e^88.
[[nodiscard]] float exponential(float x) noexcept;

/// Rows of: out = bias + residual, each left out where null.
void start_rows(float* out, const float* bias, const float* residual, std::size_t begin, std::size_t end,
                std::size_t width) noexcept;

/// Columns of: out = the sum of x over its rows.
void sum_rows(float* out, const float* x, std::size_t begin, std::size_t end, std::size_t rows,
              std::size_t width) noexcept;

void layer_norm(float* out, float* stats, const float* x, const float* gain, const float* bias, std::size_t begin,
                std::size_t end, std::size_t width) noexcept;

void layer_norm_gradient_rows(float* dx, const float* dout, const float* x, const float* stats, const float* gain,
                              std::size_t begin, std::size_t end, std::size_t width, bool first) noexcept;

void layer_norm_gradient_columns(float* dgain, float* dbias, const float* dout, const float* x, const float* stats,
                                 std::size_t begin, std::size_t end, std::size_t rows, std::size_t width) noexcept;

void gelu(float* out, const float* x, std::size_t begin, std::size_t end) noexcept;

void gelu_gradient(float* dx, const float* x, std::size_t begin, std::size_t end) noexcept;

/// Turns scores (size, size) into causal probabilities: row i over columns 0 .. i, zero beyond.
void causal_softmax(float* scores, std::size_t size, float scale) noexcept;

/// Turns the gradient of probabilities into that of scores, in place.
void causal_softmax_gradient(float* gradient, const float* probabilities, std::size_t size, float scale) noexcept;

void embed(float* out, const float* table, const float* positions, const std::int32_t* tokens, std::size_t begin,
           std::size_t end, const gpt_shape& shape) noexcept;

/// Columns of the embeddings' gradients; rows are added in order.
void embed_gradient(float* dtable, float* dpositions, const float* dout, const std::int32_t* tokens, std::size_t begin,
                    std::size_t end, const gpt_shape& shape) noexcept;

/// Rows of the loss, and logits turned into the gradient of the mean loss.
void cross_entropy(double* losses, float* logits, const std::int32_t* tokens, std::size_t begin, std::size_t end,
                   const gpt_shape& shape) noexcept;

void adamw(float* p, float* m, float* v, const float* g, std::size_t begin, std::size_t end,
           const adamw_factors& f) noexcept;

}  // namespace train_gpt::host_math
