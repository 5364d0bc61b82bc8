// SPDX-License-Identifier: Apache-2.0
// The kernels: a block for a row, a thread for a column or an element. Written to be read; the products, where the time
// goes, are cuBLAS's.

#include "kernels.hpp"

#include <algorithm>

namespace train_gpt::kernels {

namespace {

constexpr unsigned block_size = 256;  // a power of two, as the trees below need
constexpr unsigned tile_columns = 32;
constexpr unsigned tile_rows = 16;
constexpr float gelu_scale = 1.5957691216057308F;  // 2 sqrt(2 / pi)

unsigned blocks_for(std::size_t count) {
  return static_cast<unsigned>(std::min<std::size_t>((count + block_size - 1) / block_size, 65'535));
}

// All threads of a block get the sum (or the maximum) of their values, by a tree of fixed shape.
template <class T, class Join>
__device__ T together(T value, Join join) {
  __shared__ T shared[block_size];
  __syncthreads();
  shared[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = block_size / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] = join(shared[threadIdx.x], shared[threadIdx.x + half]);
    __syncthreads();
  }
  return shared[0];
}

struct plus {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
struct larger {
  __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

__global__ void start_rows_kernel(float* out, const float* bias, const float* residual, std::size_t count,
                                  std::size_t width) {
  for (std::size_t i = blockIdx.x * std::size_t{block_size} + threadIdx.x; i < count;
       i += gridDim.x * std::size_t{block_size}) {
    out[i] = (bias == nullptr ? 0.0F : bias[i % width]) + (residual == nullptr ? 0.0F : residual[i]);
  }
}

// Sums over rows of value(row, column), a tile of columns for each block; store(column, sum).
template <class Value, class Store>
__device__ void sum_columns(std::size_t rows, std::size_t width, Value value, Store store) {
  __shared__ float part[tile_rows][tile_columns];
  const std::size_t column = blockIdx.x * std::size_t{tile_columns} + threadIdx.x;
  float sum = 0.0F;
  if (column < width) {
    for (std::size_t r = threadIdx.y; r < rows; r += tile_rows) sum += value(r, column);
  }
  __syncthreads();
  part[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y == 0 && column < width) {
    float total = 0.0F;
    for (unsigned i = 0; i < tile_rows; ++i) total += part[i][threadIdx.x];
    store(column, total);
  }
}

__global__ void sum_rows_kernel(float* out, const float* x, std::size_t rows, std::size_t width) {
  sum_columns(
      rows, width, [=](std::size_t r, std::size_t c) { return x[r * width + c]; },
      [=](std::size_t c, float sum) { out[c] = sum; });
}

__global__ void layer_norm_kernel(float* out, float* stats, const float* x, const float* gain, const float* bias,
                                  std::size_t width) {
  const std::size_t row = blockIdx.x;
  const float* const from = x + row * width;
  float sum = 0.0F;
  for (std::size_t c = threadIdx.x; c < width; c += block_size) sum += from[c];
  const float mean = together(sum, plus{}) / static_cast<float>(width);
  float squares = 0.0F;
  for (std::size_t c = threadIdx.x; c < width; c += block_size) squares += (from[c] - mean) * (from[c] - mean);
  const float scale = 1.0F / sqrtf(together(squares, plus{}) / static_cast<float>(width) + 1e-5F);
  if (threadIdx.x == 0) {
    stats[2 * row] = mean;
    stats[2 * row + 1] = scale;
  }
  for (std::size_t c = threadIdx.x; c < width; c += block_size) {
    out[row * width + c] = (from[c] - mean) * scale * gain[c] + bias[c];
  }
}

__global__ void layer_norm_gradient_kernel(float* dx, const float* dout, const float* x, const float* stats,
                                           const float* gain, std::size_t width, bool first) {
  const std::size_t row = blockIdx.x;
  const float* const above = dout + row * width;
  const float* const from = x + row * width;
  const float mean = stats[2 * row];
  const float scale = stats[2 * row + 1];
  float d_mean = 0.0F;
  float d_normed = 0.0F;
  for (std::size_t c = threadIdx.x; c < width; c += block_size) {
    d_mean += above[c] * gain[c];
    d_normed += above[c] * gain[c] * (from[c] - mean) * scale;
  }
  d_mean = together(d_mean, plus{}) / static_cast<float>(width);
  d_normed = together(d_normed, plus{}) / static_cast<float>(width);
  for (std::size_t c = threadIdx.x; c < width; c += block_size) {
    const float d = (above[c] * gain[c] - d_mean - (from[c] - mean) * scale * d_normed) * scale;
    dx[row * width + c] = (first ? 0.0F : dx[row * width + c]) + d;
  }
}

__global__ void layer_norm_columns_kernel(float* dgain, float* dbias, const float* dout, const float* x,
                                          const float* stats, std::size_t rows, std::size_t width) {
  sum_columns(
      rows, width,
      [=](std::size_t r, std::size_t c) {
        return dout[r * width + c] * (x[r * width + c] - stats[2 * r]) * stats[2 * r + 1];
      },
      [=](std::size_t c, float sum) { dgain[c] = sum; });
  sum_columns(
      rows, width, [=](std::size_t r, std::size_t c) { return dout[r * width + c]; },
      [=](std::size_t c, float sum) { dbias[c] = sum; });
}

__device__ float gelu_gate(float x) { return 1.0F / (1.0F + expf(-gelu_scale * (x + 0.044715F * x * x * x))); }

__global__ void gelu_kernel(float* out, const float* x, std::size_t count) {
  for (std::size_t i = blockIdx.x * std::size_t{block_size} + threadIdx.x; i < count;
       i += gridDim.x * std::size_t{block_size}) {
    out[i] = x[i] * gelu_gate(x[i]);
  }
}

__global__ void gelu_gradient_kernel(float* dx, const float* x, std::size_t count) {
  for (std::size_t i = blockIdx.x * std::size_t{block_size} + threadIdx.x; i < count;
       i += gridDim.x * std::size_t{block_size}) {
    const float gate = gelu_gate(x[i]);
    const float inner = gelu_scale * (1.0F + 3.0F * 0.044715F * x[i] * x[i]);
    dx[i] *= gate + x[i] * gate * (1.0F - gate) * inner;
  }
}

__global__ void causal_softmax_kernel(float* scores, std::size_t stride, std::size_t size, float scale) {
  const std::size_t row = blockIdx.x;
  float* const at = scores + blockIdx.y * stride + row * size;
  float top = at[0];
  for (std::size_t j = threadIdx.x; j <= row; j += block_size) top = larger{}(top, at[j]);
  top = together(top, larger{});
  float sum = 0.0F;
  for (std::size_t j = threadIdx.x; j <= row; j += block_size) {
    at[j] = expf((at[j] - top) * scale);
    sum += at[j];
  }
  const float share = 1.0F / together(sum, plus{});
  for (std::size_t j = threadIdx.x; j < size; j += block_size) at[j] = j <= row ? at[j] * share : 0.0F;
}

__global__ void causal_softmax_gradient_kernel(float* gradient, const float* probabilities, std::size_t stride,
                                               std::size_t size, float scale) {
  const std::size_t row = blockIdx.x;
  float* const d = gradient + blockIdx.y * stride + row * size;
  const float* const p = probabilities + blockIdx.y * stride + row * size;
  float sum = 0.0F;
  for (std::size_t j = threadIdx.x; j <= row; j += block_size) sum += d[j] * p[j];
  const float all = together(sum, plus{});
  for (std::size_t j = threadIdx.x; j < size; j += block_size) d[j] = j <= row ? p[j] * (d[j] - all) * scale : 0.0F;
}

__device__ std::int32_t token_of(const std::int32_t* tokens, std::size_t row, std::size_t context, std::size_t ahead) {
  return tokens[row / context * (context + 1) + row % context + ahead];
}

__global__ void embed_kernel(float* out, const float* table, const float* positions, const std::int32_t* tokens,
                             gpt_shape shape) {
  const std::size_t row = blockIdx.x;
  const auto token = static_cast<std::size_t>(token_of(tokens, row, shape.context, 0));
  for (std::size_t c = threadIdx.x; c < shape.width; c += block_size) {
    out[row * shape.width + c] = table[token * shape.width + c] + positions[row % shape.context * shape.width + c];
  }
}

// A block for each token of the vocabulary; its rows are added in order.
__global__ void embed_table_kernel(float* dtable, const float* dout, const std::int32_t* tokens, gpt_shape shape,
                                   std::size_t rows) {
  for (std::size_t c = threadIdx.x; c < shape.width; c += block_size) {
    float sum = dtable[blockIdx.x * shape.width + c];
    for (std::size_t r = 0; r < rows; ++r) {
      if (static_cast<unsigned>(token_of(tokens, r, shape.context, 0)) == blockIdx.x) sum += dout[r * shape.width + c];
    }
    dtable[blockIdx.x * shape.width + c] = sum;
  }
}

__global__ void embed_positions_kernel(float* dpositions, const float* dout, gpt_shape shape) {
  for (std::size_t c = threadIdx.x; c < shape.width; c += block_size) {
    float sum = 0.0F;
    for (std::size_t b = 0; b < shape.batch; ++b) sum += dout[(b * shape.context + blockIdx.x) * shape.width + c];
    dpositions[blockIdx.x * shape.width + c] = sum;
  }
}

__global__ void cross_entropy_kernel(double* losses, float* logits, const std::int32_t* tokens, std::size_t context,
                                     float mean) {
  static_assert(gpt_shape::vocabulary == block_size, "a thread for each token");
  const std::size_t row = blockIdx.x;
  float* const at = logits + row * gpt_shape::vocabulary;
  const auto target = static_cast<unsigned>(token_of(tokens, row, context, 1));
  const float mine = at[threadIdx.x];
  const float top = together(mine, larger{});
  const float power = expf(mine - top);
  const float total = together(power, plus{});
  if (threadIdx.x == target) losses[1 + row] = log(static_cast<double>(total)) - static_cast<double>(mine - top);
  at[threadIdx.x] = power * (mean / total) - (threadIdx.x == target ? mean : 0.0F);
}

__global__ void mean_kernel(double* losses, std::size_t rows) {
  double sum = 0.0;
  for (std::size_t r = threadIdx.x; r < rows; r += block_size) sum += losses[1 + r];
  sum = together(sum, plus{});
  if (threadIdx.x == 0) losses[0] = sum / static_cast<double>(rows);
}

__global__ void adamw_kernel(float* p, float* m, float* v, const float* g, std::size_t count, adamw_factors k) {
  for (std::size_t i = blockIdx.x * std::size_t{block_size} + threadIdx.x; i < count;
       i += gridDim.x * std::size_t{block_size}) {
    m[i] = k.beta1 * m[i] + (1.0F - k.beta1) * g[i];
    v[i] = k.beta2 * v[i] + (1.0F - k.beta2) * g[i] * g[i];
    p[i] = p[i] * k.keep - k.rate * (m[i] * k.correct1) / (sqrtf(v[i] * k.correct2) + k.epsilon);
  }
}

unsigned tiles_for(std::size_t width) { return static_cast<unsigned>((width + tile_columns - 1) / tile_columns); }
unsigned narrow(std::size_t n) { return static_cast<unsigned>(n); }

}  // namespace

void start_rows(cudaStream_t s, float* out, const float* bias, const float* residual, std::size_t rows,
                std::size_t width) {
  start_rows_kernel<<<blocks_for(rows * width), block_size, 0, s>>>(out, bias, residual, rows * width, width);
}

void sum_rows(cudaStream_t s, float* out, const float* x, std::size_t rows, std::size_t width) {
  sum_rows_kernel<<<tiles_for(width), dim3(tile_columns, tile_rows), 0, s>>>(out, x, rows, width);
}

void layer_norm(cudaStream_t s, float* out, float* stats, const float* x, const float* gain, const float* bias,
                std::size_t rows, std::size_t width) {
  layer_norm_kernel<<<narrow(rows), block_size, 0, s>>>(out, stats, x, gain, bias, width);
}

void layer_norm_gradient(cudaStream_t s, float* dx, float* dgain, float* dbias, const float* dout, const float* x,
                         const float* stats, const float* gain, std::size_t rows, std::size_t width, bool first) {
  layer_norm_columns_kernel<<<tiles_for(width), dim3(tile_columns, tile_rows), 0, s>>>(dgain, dbias, dout, x, stats,
                                                                                       rows, width);
  layer_norm_gradient_kernel<<<narrow(rows), block_size, 0, s>>>(dx, dout, x, stats, gain, width, first);
}

void gelu(cudaStream_t s, float* out, const float* x, std::size_t count) {
  gelu_kernel<<<blocks_for(count), block_size, 0, s>>>(out, x, count);
}

void gelu_gradient(cudaStream_t s, float* dx, const float* x, std::size_t count) {
  gelu_gradient_kernel<<<blocks_for(count), block_size, 0, s>>>(dx, x, count);
}

void causal_softmax(cudaStream_t s, float* scores, std::size_t squares, std::size_t stride, std::size_t size,
                    float scale) {
  causal_softmax_kernel<<<dim3(narrow(size), narrow(squares)), block_size, 0, s>>>(scores, stride, size, scale);
}

void causal_softmax_gradient(cudaStream_t s, float* gradient, const float* probabilities, std::size_t squares,
                             std::size_t stride, std::size_t size, float scale) {
  causal_softmax_gradient_kernel<<<dim3(narrow(size), narrow(squares)), block_size, 0, s>>>(gradient, probabilities,
                                                                                            stride, size, scale);
}

void embed(cudaStream_t s, float* out, const float* table, const float* positions, const std::int32_t* tokens,
           const gpt_shape& shape) {
  embed_kernel<<<narrow(shape.rows()), block_size, 0, s>>>(out, table, positions, tokens, shape);
}

void embed_gradient(cudaStream_t s, float* dtable, float* dpositions, const float* dout, const std::int32_t* tokens,
                    const gpt_shape& shape) {
  embed_table_kernel<<<narrow(gpt_shape::vocabulary), block_size, 0, s>>>(dtable, dout, tokens, shape, shape.rows());
  embed_positions_kernel<<<narrow(shape.context), block_size, 0, s>>>(dpositions, dout, shape);
}

void cross_entropy(cudaStream_t s, double* losses, float* logits, const std::int32_t* tokens, const gpt_shape& shape) {
  const float mean = 1.0F / static_cast<float>(shape.rows());
  cross_entropy_kernel<<<narrow(shape.rows()), block_size, 0, s>>>(losses, logits, tokens, shape.context, mean);
  mean_kernel<<<1, block_size, 0, s>>>(losses, shape.rows());
}

void adamw(cudaStream_t s, float* p, float* m, float* v, const float* g, std::size_t count,
           const adamw_factors& factors) {
  adamw_kernel<<<blocks_for(count), block_size, 0, s>>>(p, m, v, g, count, factors);
}

}  // namespace train_gpt::kernels
