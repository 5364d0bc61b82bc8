// SPDX-License-Identifier: Apache-2.0
#pragma once

// The CUDA kernels by the functions that launch them: plain declarations, so that only kernels.cu needs nvcc.
//
// Shapes as in ops.hpp. Every sum runs in an order that depends on the shapes alone; there are no atomics.

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "gpt_shape.hpp"
#include "ops.hpp"

namespace train_gpt::kernels {

// out = bias + residual, each left out where null
void start_rows(cudaStream_t s, float* out, const float* bias, const float* residual, std::size_t rows,
                std::size_t width);
// out (width) = the sum of x (rows, width) over its rows
void sum_rows(cudaStream_t s, float* out, const float* x, std::size_t rows, std::size_t width);
void layer_norm(cudaStream_t s, float* out, float* stats, const float* x, const float* gain, const float* bias,
                std::size_t rows, std::size_t width);
void layer_norm_gradient(cudaStream_t s, float* dx, float* dgain, float* dbias, const float* dout, const float* x,
                         const float* stats, const float* gain, std::size_t rows, std::size_t width, bool first);
void gelu(cudaStream_t s, float* out, const float* x, std::size_t count);
void gelu_gradient(cudaStream_t s, float* dx, const float* x, std::size_t count);
// Squares of (size, size), `stride` elements apart.
void causal_softmax(cudaStream_t s, float* scores, std::size_t squares, std::size_t stride, std::size_t size,
                    float scale);
void causal_softmax_gradient(cudaStream_t s, float* gradient, const float* probabilities, std::size_t squares,
                             std::size_t stride, std::size_t size, float scale);
void embed(cudaStream_t s, float* out, const float* table, const float* positions, const std::int32_t* tokens,
           const gpt_shape& shape);
void embed_gradient(cudaStream_t s, float* dtable, float* dpositions, const float* dout, const std::int32_t* tokens,
                    const gpt_shape& shape);
void cross_entropy(cudaStream_t s, double* losses, float* logits, const std::int32_t* tokens, const gpt_shape& shape);
void adamw(cudaStream_t s, float* p, float* m, float* v, const float* g, std::size_t count,
           const adamw_factors& factors);

}  // namespace train_gpt::kernels
