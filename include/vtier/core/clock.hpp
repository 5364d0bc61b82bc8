// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where time comes from: a parameter, so that a simulated machine can have its own.

#include <chrono>
#include <concepts>
#include <cstdint>

#include <vtier/core/config.hpp>

namespace vtier {

/// Something that tells a time that never goes back.
///
/// Units   ns since a point of its own choice
/// Threads any
template <class C>
concept clock_source = requires(const C& c) {
  { c.now_ns() } -> std::same_as<std::int64_t>;
};

/// The machine's monotonic clock.
class steady_clock {
 public:
  /// Units   ns
  [[nodiscard]] std::int64_t now_ns() const noexcept {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
  }
};

static_assert(clock_source<steady_clock>);

}  // namespace vtier
