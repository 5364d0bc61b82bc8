// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which operations a GPT needs, with their shapes. `ops<Device>` has two models: host_ops.hpp (CBLAS and loops) and
// cuda_ops.hpp (cuBLAS and kernels.cu).
//
// Every operation is enqueued on a stream and returns before it runs; it is given plain addresses that stay valid for
// that work. All arrays are row-major and dense. All sums run in a fixed order, so that the same inputs give the same
// bits wherever the arrays are.

#include <concepts>
#include <cstddef>
#include <cstdint>

#include "gpt_shape.hpp"

namespace train_gpt {

/// What one AdamW update needs besides the arrays; computed on the host by optimizer.hpp.
struct adamw_factors {
  float rate = 0;  // learning rate of this step
  float keep = 1;  // 1 - rate * weight decay: what a parameter is multiplied by first
  float beta1 = 0;
  float beta2 = 0;
  float correct1 = 1;  // 1 / (1 - beta1^step)
  float correct2 = 1;  // 1 / (1 - beta2^step)
  float epsilon = 0;   // added to the root of the corrected second moment
};

/// The operations of a device; the models are specialisations.
template <class Device>
class ops;

// clang-format off
/// What `ops<Device>` gives. With N = batch * context rows, C = width, V = vocabulary:
///
/// Shape   linear                  out (N, O) = x (N, I) w (O, I)^T + bias (O) + residual (N, O) if not null
///         linear_input_gradient   dx (N, I) = dout (N, O) w (O, I)
///         linear_weight_gradient  dw (O, I) = dout^T x; dbias (O) = the sum of dout over rows, if not null
///         layer_norm              out (N, C) from x (N, C), gain (C), bias (C); stats (N, 2): mean and 1 / deviation
///         layer_norm_gradient     dx (N, C) += (or =, with `first`) the gradient from dout (N, C); dgain, dbias (C)
///         gelu, gelu_gradient     out (n) = gelu(x), the tanh form; dx (n) *= gelu'(x)
///         attention               out (N, C) from qkv (N, 3 C), causal; scratch (attention_scratch)
///         attention_gradient      dqkv (N, 3 C) from dout (N, C) and qkv; what the forward pass had is computed again
///         embed                   out (N, C) = table (V, C) by token + positions (context, C)
///         embed_gradient          dtable (V, C) += , dpositions (context, C) = sums of dout (N, C)
///         cross_entropy           logits (N, V) become the gradient of the mean loss; losses (1 + N): mean, then rows
///         adamw                   p, m, v (n) from g (n)
///         tokens (batch, context + 1): inputs are columns 0 .. context - 1, targets are columns 1 .. context
template <class Ops, class Stream>
concept gpt_ops = requires(Ops& o, Stream s, float* f, const float* c, const std::int32_t* t, double* d, std::size_t n,
                           const gpt_shape& shape, const adamw_factors& factors) {
  { o.linear(s, f, c, c, c, c, n, n, n) } -> std::same_as<void>;            // out, x, w, bias, residual, N, O, I
  { o.linear_input_gradient(s, f, c, c, n, n, n) } -> std::same_as<void>;   // dx, dout, w, N, O, I
  { o.linear_weight_gradient(s, f, f, c, c, n, n, n) } -> std::same_as<void>;  // dw, dbias, dout, x, N, O, I
  { o.layer_norm(s, f, f, c, c, c, n, n) } -> std::same_as<void>;           // out, stats, x, gain, bias, N, C
  // dx, dgain, dbias, dout, x, stats, gain, N, C, first
  { o.layer_norm_gradient(s, f, f, f, c, c, c, c, n, n, true) } -> std::same_as<void>;
  { o.gelu(s, f, c, n) } -> std::same_as<void>;                             // out, x, n
  { o.gelu_gradient(s, f, c, n) } -> std::same_as<void>;                    // dx, x, n
  { o.attention_scratch(shape) } -> std::same_as<std::size_t>;              // elements
  { o.attention(s, f, f, c, shape) } -> std::same_as<void>;                 // out, scratch, qkv
  { o.attention_gradient(s, f, f, c, c, shape) } -> std::same_as<void>;     // dqkv, scratch, dout, qkv
  { o.embed(s, f, c, c, t, shape) } -> std::same_as<void>;                  // out, table, positions, tokens
  { o.embed_gradient(s, f, f, c, t, shape) } -> std::same_as<void>;         // dtable, dpositions, dout, tokens
  { o.cross_entropy(s, d, f, t, shape) } -> std::same_as<void>;             // losses, logits, tokens
  { o.adamw(s, f, f, f, c, n, factors) } -> std::same_as<void>;             // p, m, v, g, n
};
// clang-format on

}  // namespace train_gpt
