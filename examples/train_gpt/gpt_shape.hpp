// SPDX-License-Identifier: Apache-2.0
#pragma once

// How large a model is, and what its training state comes to: numbers only, so that budgets can be chosen before any
// memory is.

#include <cstddef>
#include <cstdint>

namespace train_gpt {

/// The extents of a byte-level GPT and of the batches that it is trained on.
///
/// Units   counts
struct gpt_shape {
  static constexpr std::size_t vocabulary = 256;  // bytes
  // Rows of `width` in a layer's small parameters: two norms with gain and bias, and the biases of four products.
  static constexpr std::size_t small_rows = 13;

  std::size_t layers = 6;
  std::size_t width = 512;
  std::size_t heads = 8;
  std::size_t context = 256;
  std::size_t batch = 4;

  [[nodiscard]] constexpr std::size_t rows() const noexcept { return batch * context; }
  [[nodiscard]] constexpr std::size_t head_width() const noexcept { return width / heads; }

  /// The parameters: two embeddings (the first is the output head too), the layers, the last norm.
  [[nodiscard]] constexpr std::size_t parameter_count() const noexcept {
    return (vocabulary + context) * width + layers * (12 * width * width + small_rows * width) + 2 * width;
  }

  /// What the layers save in the forward pass, in elements: the residual stream twice, q, k and v, what attention
  /// gives, and what goes into GELU; and the last residual stream.
  [[nodiscard]] constexpr std::size_t saved_count() const noexcept { return (layers * 10 + 1) * rows() * width; }

  /// Parameters, gradients, two moments, and saved activations; in a step, gradients come as activations go.
  ///
  /// Units   bytes
  [[nodiscard]] constexpr std::size_t state_bytes() const noexcept {
    return (4 * parameter_count() + saved_count()) * sizeof(float);
  }

  /// A generous bound on what is alive besides the state at any moment of a step, the attention's own workspace aside.
  ///
  /// Units   bytes
  [[nodiscard]] constexpr std::size_t passing_bytes() const noexcept {
    return (16 * rows() * width + 2 * rows() * vocabulary + 8 * rows()) * sizeof(float);
  }
};

}  // namespace train_gpt
