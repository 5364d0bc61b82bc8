// SPDX-License-Identifier: Apache-2.0
#pragma once

// The operations on `vtier::host::device`: CBLAS for products, host_math.hpp for the rest, on a team of threads.

#include <cblas.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include <vtier/core/clock.hpp>
#include <vtier/device/host.hpp>
#include <vtier/topology/thread_count.hpp>

#include "host_math.hpp"
#include "ops.hpp"
#include "team.hpp"

namespace train_gpt {

/// The operations of a device whose launched functions are host code.
///
/// Needs   one stream at a time; outlives the work enqueued
template <class Device>
class host_ops {
 public:
  using stream_ref = typename Device::stream_ref;

  /// With as many threads as this process should start, or as told.
  explicit host_ops(Device on, std::size_t threads = vtier::default_thread_count())
      : on_{std::move(on)}, team_{(std::clamp)(threads, std::size_t{1}, std::size_t{64})} {
#ifdef OPENBLAS_VERSION
    openblas_set_num_threads(1);  // the team splits the products
#endif
  }

  /// The time spent in operations so far; for work enqueued on the stream of the operations.
  ///
  /// Units   ns
  [[nodiscard]] std::int64_t busy_ns() const noexcept { return busy_ns_; }

  void linear(stream_ref s, float* out, const float* x, const float* w, const float* bias, const float* residual,
              std::size_t rows, std::size_t outputs, std::size_t inputs) {
    enqueue(s, [=, this] {
      team_.run(rows, 16, [&](std::size_t begin, std::size_t end, std::size_t) {
        host_math::start_rows(out, bias, residual, begin, end, outputs);
        product(false, true, end - begin, outputs, inputs, x + begin * inputs, inputs, w, inputs, 1.0F,
                out + begin * outputs, outputs);
      });
    });
  }

  void linear_input_gradient(stream_ref s, float* dx, const float* dout, const float* w, std::size_t rows,
                             std::size_t outputs, std::size_t inputs) {
    enqueue(s, [=, this] {
      team_.run(rows, 16, [&](std::size_t begin, std::size_t end, std::size_t) {
        product(false, false, end - begin, inputs, outputs, dout + begin * outputs, outputs, w, inputs, 0.0F,
                dx + begin * inputs, inputs);
      });
    });
  }

  void linear_weight_gradient(stream_ref s, float* dw, float* dbias, const float* dout, const float* x,
                              std::size_t rows, std::size_t outputs, std::size_t inputs) {
    enqueue(s, [=, this] {
      team_.run(outputs, 16, [&](std::size_t begin, std::size_t end, std::size_t) {
        if (dbias != nullptr) host_math::sum_rows(dbias, dout, begin, end, rows, outputs);
        product(true, false, end - begin, inputs, rows, dout + begin, outputs, x, inputs, 0.0F, dw + begin * inputs,
                inputs);
      });
    });
  }

  void layer_norm(stream_ref s, float* out, float* stats, const float* x, const float* gain, const float* bias,
                  std::size_t rows, std::size_t width) {
    enqueue(s, [=, this] {
      team_.run(rows, 16, [&](std::size_t begin, std::size_t end, std::size_t) {
        host_math::layer_norm(out, stats, x, gain, bias, begin, end, width);
      });
    });
  }

  void layer_norm_gradient(stream_ref s, float* dx, float* dgain, float* dbias, const float* dout, const float* x,
                           const float* stats, const float* gain, std::size_t rows, std::size_t width, bool first) {
    enqueue(s, [=, this] {
      team_.run(width, 16, [&](std::size_t begin, std::size_t end, std::size_t) {
        host_math::layer_norm_gradient_columns(dgain, dbias, dout, x, stats, begin, end, rows, width);
      });
      team_.run(rows, 16, [&](std::size_t begin, std::size_t end, std::size_t) {
        host_math::layer_norm_gradient_rows(dx, dout, x, stats, gain, begin, end, width, first);
      });
    });
  }

  void gelu(stream_ref s, float* out, const float* x, std::size_t count) {
    enqueue(s, [=, this] {
      team_.run(count, 4096,
                [&](std::size_t begin, std::size_t end, std::size_t) { host_math::gelu(out, x, begin, end); });
    });
  }

  void gelu_gradient(stream_ref s, float* dx, const float* x, std::size_t count) {
    enqueue(s, [=, this] {
      team_.run(count, 4096,
                [&](std::size_t begin, std::size_t end, std::size_t) { host_math::gelu_gradient(dx, x, begin, end); });
    });
  }

  /// Two squares of scores for each thread.
  [[nodiscard]] std::size_t attention_scratch(const gpt_shape& shape) const {
    return team_.size() * 2 * shape.context * shape.context;
  }

  void attention(stream_ref s, float* out, float* scratch, const float* qkv, const gpt_shape& shape) {
    enqueue(s, [=, this] {
      const std::size_t square = shape.context * shape.context;
      team_.run(shape.batch * shape.heads, 1, [&](std::size_t begin, std::size_t end, std::size_t member) {
        float* const scores = scratch + member * 2 * square;
        for (std::size_t i = begin; i < end; ++i) {
          const head h{shape, i};
          probabilities(scores, qkv + h.in_qkv, shape);
          product(false, false, shape.context, h.size, shape.context, scores, shape.context,
                  qkv + h.in_qkv + 2 * shape.width, 3 * shape.width, 0.0F, out + h.in_out, shape.width);
        }
      });
    });
  }

  void attention_gradient(stream_ref s, float* dqkv, float* scratch, const float* dout, const float* qkv,
                          const gpt_shape& shape) {
    enqueue(s, [=, this] {
      const std::size_t n = shape.context;
      const std::size_t wide = 3 * shape.width;
      const float scale = scale_of(shape);
      team_.run(shape.batch * shape.heads, 1, [&](std::size_t begin, std::size_t end, std::size_t member) {
        float* const p = scratch + member * 2 * n * n;
        float* const d = p + n * n;
        for (std::size_t i = begin; i < end; ++i) {
          const head h{shape, i};
          const float* const q = qkv + h.in_qkv;
          const float* const k = q + shape.width;
          const float* const v = k + shape.width;
          float* const dq = dqkv + h.in_qkv;
          const float* const above = dout + h.in_out;
          probabilities(p, q, shape);
          product(true, false, n, h.size, n, p, n, above, shape.width, 0.0F, dq + 2 * shape.width, wide);
          product(false, true, n, n, h.size, above, shape.width, v, wide, 0.0F, d, n);
          host_math::causal_softmax_gradient(d, p, n, scale);
          product(false, false, n, h.size, n, d, n, k, wide, 0.0F, dq, wide);
          product(true, false, n, h.size, n, d, n, q, wide, 0.0F, dq + shape.width, wide);
        }
      });
    });
  }

  void embed(stream_ref s, float* out, const float* table, const float* positions, const std::int32_t* tokens,
             const gpt_shape& shape) {
    enqueue(s, [=, this] {
      team_.run(shape.rows(), 16, [&](std::size_t begin, std::size_t end, std::size_t) {
        host_math::embed(out, table, positions, tokens, begin, end, shape);
      });
    });
  }

  void embed_gradient(stream_ref s, float* dtable, float* dpositions, const float* dout, const std::int32_t* tokens,
                      const gpt_shape& shape) {
    enqueue(s, [=, this] {
      team_.run(shape.width, 16, [&](std::size_t begin, std::size_t end, std::size_t) {
        host_math::embed_gradient(dtable, dpositions, dout, tokens, begin, end, shape);
      });
    });
  }

  void cross_entropy(stream_ref s, double* losses, float* logits, const std::int32_t* tokens, const gpt_shape& shape) {
    enqueue(s, [=, this] {
      team_.run(shape.rows(), 16, [&](std::size_t begin, std::size_t end, std::size_t) {
        host_math::cross_entropy(losses, logits, tokens, begin, end, shape);
      });
      double total = 0.0;
      for (std::size_t r = 0; r < shape.rows(); ++r) total += losses[1 + r];
      losses[0] = total / static_cast<double>(shape.rows());
    });
  }

  void adamw(stream_ref s, float* p, float* m, float* v, const float* g, std::size_t count,
             const adamw_factors& factors) {
    enqueue(s, [=, this] {
      team_.run(count, 4096, [&](std::size_t begin, std::size_t end, std::size_t) {
        host_math::adamw(p, m, v, g, begin, end, factors);
      });
    });
  }

 private:
  template <class F>
  void enqueue(const stream_ref& s, F f) {
    on_.launch(s, [this, f] {
      const std::int64_t began = vtier::steady_clock{}.now_ns();
      f();
      busy_ns_ += vtier::steady_clock{}.now_ns() - began;
    });
  }

  // Where a head of one sample begins in (N, 3 C) and in (N, C).
  struct head {
    head(const gpt_shape& shape, std::size_t index)
        : size{shape.head_width()},
          in_out{index / shape.heads * shape.context * shape.width + index % shape.heads * size},
          in_qkv{index / shape.heads * shape.context * 3 * shape.width + index % shape.heads * size} {}
    std::size_t size;
    std::size_t in_out;
    std::size_t in_qkv;
  };

  static float scale_of(const gpt_shape& shape) { return 1.0F / std::sqrt(static_cast<float>(shape.head_width())); }

  static void probabilities(float* scores, const float* q, const gpt_shape& shape) {
    product(false, true, shape.context, shape.context, shape.head_width(), q, 3 * shape.width, q + shape.width,
            3 * shape.width, 0.0F, scores, shape.context);
    host_math::causal_softmax(scores, shape.context, scale_of(shape));
  }

  // c (rows, columns) = a b + old * c, row-major; a or b transposed as told.
  static void product(bool transposed_a, bool transposed_b, std::size_t rows, std::size_t columns, std::size_t inner,
                      const float* a, std::size_t a_stride, const float* b, std::size_t b_stride, float old, float* c,
                      std::size_t c_stride) {
    const auto i = [](std::size_t n) { return static_cast<int>(n); };
    cblas_sgemm(CblasRowMajor, transposed_a ? CblasTrans : CblasNoTrans, transposed_b ? CblasTrans : CblasNoTrans,
                i(rows), i(columns), i(inner), 1.0F, a, i(a_stride), b, i(b_stride), old, c, i(c_stride));
  }

  Device on_;
  team team_;
  std::int64_t busy_ns_ = 0;  // the stream's thread's own
};

/// The host's operations.
template <>
class ops<vtier::host::device> : public host_ops<vtier::host::device> {
 public:
  using host_ops<vtier::host::device>::host_ops;
};

static_assert(gpt_ops<ops<vtier::host::device>, vtier::host::stream_ref>);

}  // namespace train_gpt
