// SPDX-License-Identifier: Apache-2.0
#pragma once

// The operations on `vtier::cuda::device`: cuBLAS for products, kernels.cu for the rest.
//
// cuBLAS keeps a workspace of its own on the device, outside the budget of the first tier. Products run in full fp32:
// TF32 stays off, and one stream with one handle gives the same bits every time.

#include <cublas_v2.h>
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <vtier/core/error.hpp>
#include <vtier/device/cuda.hpp>

#include "kernels.hpp"
#include "ops.hpp"

namespace train_gpt {

/// The GPU's operations.
///
/// Needs   one stream at a time; outlives the work enqueued; used from the thread that made it
/// Errors  device_error with the number of CUDA or cuBLAS
template <>
class ops<vtier::cuda::device> {
 public:
  using stream_ref = vtier::cuda::stream_ref;

  explicit ops(const vtier::cuda::device& on) {
    check(static_cast<int>(::cudaSetDevice(on.ordinal())), "cudaSetDevice");
    check(static_cast<int>(::cublasCreate(&blas_)), "cublasCreate");
  }
  ops(const ops&) = delete;
  ops& operator=(const ops&) = delete;
  ~ops() { ::cublasDestroy(blas_); }

  void linear(stream_ref s, float* out, const float* x, const float* w, const float* bias, const float* residual,
              std::size_t rows, std::size_t outputs, std::size_t inputs) {
    const bool starts = bias != nullptr || residual != nullptr;
    if (starts) kernels::start_rows(s, out, bias, residual, rows, outputs);
    product(s, {x, inputs, false}, {w, inputs, true}, {out, outputs}, rows, outputs, inputs, starts ? 1.0F : 0.0F);
  }

  void linear_input_gradient(stream_ref s, float* dx, const float* dout, const float* w, std::size_t rows,
                             std::size_t outputs, std::size_t inputs) {
    product(s, {dout, outputs, false}, {w, inputs, false}, {dx, inputs}, rows, inputs, outputs, 0.0F);
  }

  void linear_weight_gradient(stream_ref s, float* dw, float* dbias, const float* dout, const float* x,
                              std::size_t rows, std::size_t outputs, std::size_t inputs) {
    if (dbias != nullptr) kernels::sum_rows(s, dbias, dout, rows, outputs);
    product(s, {dout, outputs, true}, {x, inputs, false}, {dw, inputs}, outputs, inputs, rows, 0.0F);
  }

  void layer_norm(stream_ref s, float* out, float* stats, const float* x, const float* gain, const float* bias,
                  std::size_t rows, std::size_t width) {
    kernels::layer_norm(s, out, stats, x, gain, bias, rows, width);
    check_launch();
  }

  void layer_norm_gradient(stream_ref s, float* dx, float* dgain, float* dbias, const float* dout, const float* x,
                           const float* stats, const float* gain, std::size_t rows, std::size_t width, bool first) {
    kernels::layer_norm_gradient(s, dx, dgain, dbias, dout, x, stats, gain, rows, width, first);
    check_launch();
  }

  void gelu(stream_ref s, float* out, const float* x, std::size_t count) {
    kernels::gelu(s, out, x, count);
    check_launch();
  }

  void gelu_gradient(stream_ref s, float* dx, const float* x, std::size_t count) {
    kernels::gelu_gradient(s, dx, x, count);
    check_launch();
  }

  /// Two squares of scores for each head of one sample.
  [[nodiscard]] std::size_t attention_scratch(const gpt_shape& shape) const {
    return shape.heads * 2 * shape.context * shape.context;
  }

  void attention(stream_ref s, float* out, float* scratch, const float* qkv, const gpt_shape& shape) {
    const sizes z{shape};
    for (std::size_t b = 0; b < shape.batch; ++b) {
      const float* const q = qkv + b * shape.context * z.wide;
      probabilities(s, scratch, q, shape);
      product(s, {scratch, z.n, false, z.squares}, {q + 2 * shape.width, z.wide, false, z.head},
              {out + b * shape.context * shape.width, shape.width, z.head}, z.n, z.head, z.n, 0.0F, shape.heads);
    }
  }

  void attention_gradient(stream_ref s, float* dqkv, float* scratch, const float* dout, const float* qkv,
                          const gpt_shape& shape) {
    const sizes z{shape};
    float* const p = scratch;
    float* const d = scratch + z.n * z.n;
    for (std::size_t b = 0; b < shape.batch; ++b) {
      const float* const q = qkv + b * shape.context * z.wide;
      const float* const k = q + shape.width;
      const float* const v = k + shape.width;
      float* const dq = dqkv + b * shape.context * z.wide;
      const float* const above = dout + b * shape.context * shape.width;
      probabilities(s, p, q, shape);
      product(s, {p, z.n, true, z.squares}, {above, shape.width, false, z.head}, {dq + 2 * shape.width, z.wide, z.head},
              z.n, z.head, z.n, 0.0F, shape.heads);
      product(s, {above, shape.width, false, z.head}, {v, z.wide, true, z.head}, {d, z.n, z.squares}, z.n, z.n, z.head,
              0.0F, shape.heads);
      kernels::causal_softmax_gradient(s, d, p, shape.heads, z.squares, z.n, z.scale);
      check_launch();
      product(s, {d, z.n, false, z.squares}, {k, z.wide, false, z.head}, {dq, z.wide, z.head}, z.n, z.head, z.n, 0.0F,
              shape.heads);
      product(s, {d, z.n, true, z.squares}, {q, z.wide, false, z.head}, {dq + shape.width, z.wide, z.head}, z.n, z.head,
              z.n, 0.0F, shape.heads);
    }
  }

  void embed(stream_ref s, float* out, const float* table, const float* positions, const std::int32_t* tokens,
             const gpt_shape& shape) {
    kernels::embed(s, out, table, positions, tokens, shape);
    check_launch();
  }

  void embed_gradient(stream_ref s, float* dtable, float* dpositions, const float* dout, const std::int32_t* tokens,
                      const gpt_shape& shape) {
    kernels::embed_gradient(s, dtable, dpositions, dout, tokens, shape);
    check_launch();
  }

  void cross_entropy(stream_ref s, double* losses, float* logits, const std::int32_t* tokens, const gpt_shape& shape) {
    kernels::cross_entropy(s, losses, logits, tokens, shape);
    check_launch();
  }

  void adamw(stream_ref s, float* p, float* m, float* v, const float* g, std::size_t count,
             const adamw_factors& factors) {
    kernels::adamw(s, p, m, v, g, count, factors);
    check_launch();
  }

 private:
  struct sizes {
    explicit sizes(const gpt_shape& shape)
        : n{shape.context},
          wide{3 * shape.width},
          head{shape.head_width()},
          squares{2 * n * n},
          scale{1.0F / std::sqrt(static_cast<float>(head))} {}
    std::size_t n;
    std::size_t wide;
    std::size_t head;
    std::size_t squares;  // from one head's scores to the next head's
    float scale;
  };

  // Row-major matrices; `apart` elements from one of a batch to the next.
  struct factor {
    const float* data;
    std::size_t stride;
    bool transposed;
    std::size_t apart = 0;
  };
  struct target {
    float* data;
    std::size_t stride;
    std::size_t apart = 0;
  };

  void probabilities(stream_ref s, float* scores, const float* q, const gpt_shape& shape) {
    const sizes z{shape};
    product(s, {q, z.wide, false, z.head}, {q + shape.width, z.wide, true, z.head}, {scores, z.n, z.squares}, z.n, z.n,
            z.head, 0.0F, shape.heads);
    kernels::causal_softmax(s, scores, shape.heads, z.squares, z.n, z.scale);
    check_launch();
  }

  // c (rows, columns) = a b + old * c. cuBLAS reads our rows as columns: c^T = b^T a^T.
  void product(stream_ref s, const factor& a, const factor& b, const target& c, std::size_t rows, std::size_t columns,
               std::size_t inner, float old, std::size_t count = 1) {
    const auto i = [](std::size_t n) { return static_cast<int>(n); };
    const auto far_apart = [](std::size_t n) { return static_cast<long long>(n); };
    const float one = 1.0F;
    check_launch();
    check(static_cast<int>(::cublasSetStream(blas_, s)), "cublasSetStream");
    check(static_cast<int>(::cublasSgemmStridedBatched(
              blas_, b.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, a.transposed ? CUBLAS_OP_T : CUBLAS_OP_N, i(columns),
              i(rows), i(inner), &one, b.data, i(b.stride), far_apart(b.apart), a.data, i(a.stride), far_apart(a.apart),
              &old, c.data, i(c.stride), far_apart(c.apart), i(count))),
          "cublasSgemmStridedBatched");
  }

  static void check_launch() { check(static_cast<int>(::cudaGetLastError()), "a kernel launch"); }
  static void check(int code, const char* call) {
    if (code != 0)
      throw vtier::device_error(code, std::string{"train_gpt: "} + call + " failed with code " + std::to_string(code));
  }

  cublasHandle_t blas_ = nullptr;
};

static_assert(gpt_ops<ops<vtier::cuda::device>, vtier::cuda::stream_ref>);

}  // namespace train_gpt
