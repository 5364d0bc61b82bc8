// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where time comes from: a parameter, so that a simulated machine can have its own.

#include <chrono>
#include <concepts>
#include <cstdint>
#include <thread>

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

/// Lets the calling thread sleep.
///
/// Units   ns; returns at once for 0 and less
/// Threads any
inline void sleep_for_ns(std::int64_t ns) {
  if (ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds{ns});
}

}  // namespace vtier
