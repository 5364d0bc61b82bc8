// SPDX-License-Identifier: Apache-2.0
#pragma once

// A seeded generator whose numbers are the same on every compiler and standard library, unlike the distributions of
// <random>: a failing seed replays everywhere.

#include <cstdint>
#include <limits>

#include <vtier/core/config.hpp>

namespace vtier {

/// A small generator of 64-bit numbers (SplitMix64).
///
/// Needs   nothing: every seed is good
/// Threads one at a time
/// Source  Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014
class random_source {
 public:
  using result_type = std::uint64_t;

  explicit random_source(std::uint64_t seed) noexcept : state_{seed} {}

  [[nodiscard]] static constexpr result_type(min)() noexcept { return 0; }
  [[nodiscard]] static constexpr result_type(max)() noexcept { return (std::numeric_limits<result_type>::max)(); }

  /// The next number, all 64-bit values alike.
  result_type operator()() noexcept {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31U);
  }

  /// A number in [0, bound).
  ///
  /// Needs   bound > 0
  /// Gives   values alike to within 2^-64 * bound
  result_type below(result_type bound) noexcept {
    VTIER_ASSERT(bound > 0, "random_source::below needs a bound of at least 1");
    // The high half of a 64 x 64 bit product, from 32-bit halves.
    const std::uint64_t x = (*this)();
    const std::uint64_t low = (x & 0xFFFFFFFFU) * (bound & 0xFFFFFFFFU);
    const std::uint64_t middle = (x >> 32U) * (bound & 0xFFFFFFFFU) + (low >> 32U);
    const std::uint64_t other = (x & 0xFFFFFFFFU) * (bound >> 32U) + (middle & 0xFFFFFFFFU);
    return (x >> 32U) * (bound >> 32U) + (middle >> 32U) + (other >> 32U);
  }

  /// A number in [0, 1) on a grid of 2^-53.
  double uniform() noexcept { return static_cast<double>((*this)() >> 11U) * 0x1.0p-53; }

 private:
  std::uint64_t state_;
};

}  // namespace vtier
