// SPDX-License-Identifier: Apache-2.0
// The loops of the host operations.
//
// They are written for the vectoriser: sums run in sixteen lanes that are added in a fixed order, and the exponential
// is a polynomial without branches. Nothing here depends on where an array lies or how it is aligned.

#include "host_math.hpp"

#include <bit>
#include <cmath>

namespace train_gpt::host_math {

namespace {

constexpr std::size_t lanes = 16;

/// The sum of f(0) .. f(count - 1) in lanes, added from the first lane to the last.
template <class F>
[[nodiscard]] float sum(std::size_t count, const F& f) noexcept {
  float lane[lanes] = {};
  const std::size_t whole = count / lanes * lanes;
  for (std::size_t i = 0; i < whole; i += lanes) {
    for (std::size_t j = 0; j < lanes; ++j) lane[j] += f(i + j);
  }
  for (std::size_t i = whole; i < count; ++i) lane[i - whole] += f(i);
  float total = 0.0F;
  for (const float x : lane) total += x;
  return total;
}

/// The largest of x[0] .. x[count - 1]; needs count > 0.
[[nodiscard]] float largest(const float* x, std::size_t count) noexcept {
  float lane[lanes];
  for (float& l : lane) l = x[0];
  const std::size_t whole = count / lanes * lanes;
  for (std::size_t i = 0; i < whole; i += lanes) {
    for (std::size_t j = 0; j < lanes; ++j) lane[j] = x[i + j] > lane[j] ? x[i + j] : lane[j];
  }
  for (std::size_t i = whole; i < count; ++i) lane[0] = x[i] > lane[0] ? x[i] : lane[0];
  for (const float l : lane) lane[0] = l > lane[0] ? l : lane[0];
  return lane[0];
}

/// The sigmoid in the tanh form of GELU: gelu(x) = x * gate(x).
[[nodiscard]] float gelu_gate(float x) noexcept {
  constexpr float twice_root = 1.5957691216057308F;  // 2 sqrt(2 / pi)
  return 1.0F / (1.0F + exponential(-twice_root * (x + 0.044715F * x * x * x)));
}

}  // namespace

float exponential(float x) noexcept {
  x = x < -87.0F ? -87.0F : x;
  x = x > 88.0F ? 88.0F : x;
  constexpr float shift = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer in the low bits
  const float shifted = x * 1.44269504088896341F + shift;
  const float n = shifted - shift;
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;  // ln 2 in two parts
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * r * r + r + 1.0F;
  const std::uint32_t power = (std::bit_cast<std::uint32_t>(shifted) + 127U) << 23U;
  return p * std::bit_cast<float>(power);
}

void start_rows(float* out, const float* bias, const float* residual, std::size_t begin, std::size_t end,
                std::size_t width) noexcept {
  for (std::size_t r = begin; r < end; ++r) {
    float* __restrict to = out + r * width;
    const float* from = residual == nullptr ? nullptr : residual + r * width;
    for (std::size_t c = 0; c < width; ++c) {
      to[c] = (bias == nullptr ? 0.0F : bias[c]) + (from == nullptr ? 0.0F : from[c]);
    }
  }
}

void sum_rows(float* out, const float* x, std::size_t begin, std::size_t end, std::size_t rows,
              std::size_t width) noexcept {
  for (std::size_t c = begin; c < end; ++c) out[c] = 0.0F;
  for (std::size_t r = 0; r < rows; ++r) {
    const float* __restrict from = x + r * width;
    float* __restrict to = out;
    for (std::size_t c = begin; c < end; ++c) to[c] += from[c];
  }
}

void layer_norm(float* out, float* stats, const float* x, const float* gain, const float* bias, std::size_t begin,
                std::size_t end, std::size_t width) noexcept {
  const auto share = 1.0F / static_cast<float>(width);
  for (std::size_t r = begin; r < end; ++r) {
    const float* const from = x + r * width;
    const float mean = sum(width, [&](std::size_t c) { return from[c]; }) * share;
    const float variance = sum(width, [&](std::size_t c) { return (from[c] - mean) * (from[c] - mean); }) * share;
    const float scale = 1.0F / std::sqrt(variance + 1e-5F);
    stats[2 * r] = mean;
    stats[2 * r + 1] = scale;
    float* __restrict to = out + r * width;
    for (std::size_t c = 0; c < width; ++c) to[c] = (from[c] - mean) * scale * gain[c] + bias[c];
  }
}

void layer_norm_gradient_rows(float* dx, const float* dout, const float* x, const float* stats, const float* gain,
                              std::size_t begin, std::size_t end, std::size_t width, bool first) noexcept {
  const auto share = 1.0F / static_cast<float>(width);
  for (std::size_t r = begin; r < end; ++r) {
    const float* const above = dout + r * width;
    const float* const from = x + r * width;
    const float mean = stats[2 * r];
    const float scale = stats[2 * r + 1];
    const float d_mean = sum(width, [&](std::size_t c) { return above[c] * gain[c]; }) * share;
    const float d_normed =
        sum(width, [&](std::size_t c) { return above[c] * gain[c] * ((from[c] - mean) * scale); }) * share;
    float* __restrict to = dx + r * width;
    for (std::size_t c = 0; c < width; ++c) {
      const float d = (above[c] * gain[c] - d_mean - (from[c] - mean) * scale * d_normed) * scale;
      to[c] = (first ? 0.0F : to[c]) + d;
    }
  }
}

void layer_norm_gradient_columns(float* dgain, float* dbias, const float* dout, const float* x, const float* stats,
                                 std::size_t begin, std::size_t end, std::size_t rows, std::size_t width) noexcept {
  for (std::size_t c = begin; c < end; ++c) dgain[c] = dbias[c] = 0.0F;
  for (std::size_t r = 0; r < rows; ++r) {
    const float* const above = dout + r * width;
    const float* const from = x + r * width;
    const float mean = stats[2 * r];
    const float scale = stats[2 * r + 1];
    float* __restrict to_gain = dgain;
    float* __restrict to_bias = dbias;
    for (std::size_t c = begin; c < end; ++c) {
      to_gain[c] += above[c] * ((from[c] - mean) * scale);
      to_bias[c] += above[c];
    }
  }
}

void gelu(float* out, const float* x, std::size_t begin, std::size_t end) noexcept {
  float* __restrict to = out;
  for (std::size_t i = begin; i < end; ++i) to[i] = x[i] * gelu_gate(x[i]);
}

void gelu_gradient(float* dx, const float* x, std::size_t begin, std::size_t end) noexcept {
  constexpr float twice_root = 1.5957691216057308F;
  float* __restrict to = dx;
  for (std::size_t i = begin; i < end; ++i) {
    const float gate = gelu_gate(x[i]);
    const float inner = twice_root * (1.0F + 3.0F * 0.044715F * x[i] * x[i]);
    to[i] *= gate + x[i] * gate * (1.0F - gate) * inner;
  }
}

void causal_softmax(float* scores, std::size_t size, float scale) noexcept {
  for (std::size_t i = 0; i < size; ++i) {
    float* __restrict row = scores + i * size;
    const float top = largest(row, i + 1);
    for (std::size_t j = 0; j <= i; ++j) row[j] = exponential((row[j] - top) * scale);
    const float share = 1.0F / sum(i + 1, [&](std::size_t j) { return row[j]; });
    for (std::size_t j = 0; j <= i; ++j) row[j] *= share;
    for (std::size_t j = i + 1; j < size; ++j) row[j] = 0.0F;
  }
}

void causal_softmax_gradient(float* gradient, const float* probabilities, std::size_t size, float scale) noexcept {
  for (std::size_t i = 0; i < size; ++i) {
    float* __restrict d = gradient + i * size;
    const float* const p = probabilities + i * size;
    const float together = sum(i + 1, [&](std::size_t j) { return d[j] * p[j]; });
    for (std::size_t j = 0; j <= i; ++j) d[j] = p[j] * (d[j] - together) * scale;
    for (std::size_t j = i + 1; j < size; ++j) d[j] = 0.0F;
  }
}

void embed(float* out, const float* table, const float* positions, const std::int32_t* tokens, std::size_t begin,
           std::size_t end, const gpt_shape& shape) noexcept {
  for (std::size_t r = begin; r < end; ++r) {
    const std::size_t b = r / shape.context;
    const std::size_t t = r % shape.context;
    const float* const word = table + static_cast<std::size_t>(tokens[b * (shape.context + 1) + t]) * shape.width;
    const float* const place = positions + t * shape.width;
    float* __restrict to = out + r * shape.width;
    for (std::size_t c = 0; c < shape.width; ++c) to[c] = word[c] + place[c];
  }
}

void embed_gradient(float* dtable, float* dpositions, const float* dout, const std::int32_t* tokens, std::size_t begin,
                    std::size_t end, const gpt_shape& shape) noexcept {
  for (std::size_t t = 0; t < shape.context; ++t) {
    for (std::size_t c = begin; c < end; ++c) dpositions[t * shape.width + c] = 0.0F;
  }
  for (std::size_t r = 0; r < shape.rows(); ++r) {
    const std::size_t b = r / shape.context;
    const std::size_t t = r % shape.context;
    const float* const above = dout + r * shape.width;
    float* __restrict word = dtable + static_cast<std::size_t>(tokens[b * (shape.context + 1) + t]) * shape.width;
    float* __restrict place = dpositions + t * shape.width;
    for (std::size_t c = begin; c < end; ++c) {
      word[c] += above[c];
      place[c] += above[c];
    }
  }
}

void cross_entropy(double* losses, float* logits, const std::int32_t* tokens, std::size_t begin, std::size_t end,
                   const gpt_shape& shape) noexcept {
  constexpr std::size_t size = gpt_shape::vocabulary;
  const float mean = 1.0F / static_cast<float>(shape.rows());
  for (std::size_t r = begin; r < end; ++r) {
    float* const row = logits + r * size;
    const std::size_t b = r / shape.context;
    const auto target = static_cast<std::size_t>(tokens[b * (shape.context + 1) + r % shape.context + 1]);
    const float top = largest(row, size);
    const float wanted = row[target] - top;
    for (std::size_t j = 0; j < size; ++j) row[j] = exponential(row[j] - top);
    const float total = sum(size, [&](std::size_t j) { return row[j]; });
    losses[1 + r] = std::log(static_cast<double>(total)) - static_cast<double>(wanted);
    const float share = mean / total;
    for (std::size_t j = 0; j < size; ++j) row[j] *= share;
    row[target] -= mean;
  }
}

void adamw(float* p, float* m, float* v, const float* g, std::size_t begin, std::size_t end,
           const adamw_factors& f) noexcept {
  float* __restrict parameter = p;
  float* __restrict first = m;
  float* __restrict second = v;
  const float* __restrict gradient = g;
  const adamw_factors k = f;
  for (std::size_t i = begin; i < end; ++i) {
    const float d = gradient[i];
    first[i] = k.beta1 * first[i] + (1.0F - k.beta1) * d;
    second[i] = k.beta2 * second[i] + (1.0F - k.beta2) * d * d;
    const float root = std::sqrt(second[i] * k.correct2) + k.epsilon;
    parameter[i] = parameter[i] * k.keep - k.rate * (first[i] * k.correct1) / root;
  }
}

}  // namespace train_gpt::host_math
