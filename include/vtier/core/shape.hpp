// SPDX-License-Identifier: Apache-2.0
#pragma once

// How many elements, in which extents: 64-bit and checked, so that a product that overflows is an error at the place
// where the shape is written and not a small allocation later.

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <string>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>

namespace vtier {

/// The extents of a tensor, outermost first; rank 0 is one element.
///
/// Shape   up to 8 extents, each any 64-bit count, zero included
/// Errors  usage_error where there are more than 8 extents or their product does not fit in 64 bits
/// Threads as any value
/// Cost    no allocation
class shape {
 public:
  static constexpr std::size_t rank_max = 8;

  /// The shape of a single element: no extents.
  shape() = default;

  shape(std::initializer_list<std::size_t> extents)
      : shape(std::span<const std::size_t>{extents.begin(), extents.size()}) {}

  explicit shape(std::span<const std::size_t> extents) : rank_{extents.size()} {
    if (rank_ > rank_max) {
      throw usage_error("a shape has at most 8 extents, got " + std::to_string(rank_) + ": merge neighbouring extents");
    }
    bool empty = false;
    for (std::size_t i = 0; i < rank_; ++i) {
      extents_[i] = extents[i];
      empty = empty || extents[i] == 0;
    }
    if (empty) {
      elements_ = 0;
      return;
    }
    for (std::size_t i = 0; i < rank_; ++i) {
      const auto product = checked_multiply(elements_, extents_[i]);
      if (!product) throw usage_error("shape " + to_string() + " has more elements than 64 bits can count");
      elements_ = *product;
    }
  }

  /// How many extents there are.
  [[nodiscard]] std::size_t rank() const noexcept { return rank_; }

  /// The extents, outermost first.
  [[nodiscard]] std::span<const std::size_t> extents() const noexcept { return {extents_.data(), rank_}; }

  /// One extent.
  ///
  /// Needs   index < rank()
  [[nodiscard]] std::size_t operator[](std::size_t index) const noexcept {
    VTIER_ASSERT(index < rank_, "an extent was asked for that the shape does not have");
    return extents_[index];
  }

  /// The number of elements: the product of the extents.
  [[nodiscard]] std::size_t elements() const noexcept { return elements_; }

  /// The size of all elements.
  ///
  /// Units   bytes
  /// Errors  usage_error where it does not fit in 64 bits
  [[nodiscard]] std::size_t bytes(std::size_t element_bytes) const {
    const auto product = checked_multiply(elements_, element_bytes);
    if (!product) {
      throw usage_error("shape " + to_string() + " of " + std::to_string(element_bytes) +
                        "-byte elements has more bytes than 64 bits can count");
    }
    return *product;
  }

  /// The shape as text: "[4096, 4096]".
  [[nodiscard]] std::string to_string() const {
    std::string text = "[";
    for (std::size_t i = 0; i < rank_; ++i) {
      if (i != 0) text += ", ";
      text += std::to_string(extents_[i]);
    }
    return text + "]";
  }

  friend bool operator==(const shape& a, const shape& b) noexcept {
    return a.rank_ == b.rank_ && a.extents_ == b.extents_;
  }

 private:
  std::array<std::size_t, rank_max> extents_{};
  std::size_t rank_ = 0;
  std::size_t elements_ = 1;
};

}  // namespace vtier
