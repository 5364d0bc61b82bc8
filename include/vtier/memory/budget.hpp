// SPDX-License-Identifier: Apache-2.0
#pragma once

// How much of a memory may be used, how much is, and how much was at most: a counter with a hard cap.

#include <atomic>
#include <cstddef>
#include <string>
#include <utility>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>

namespace vtier {

/// A count of bytes that never passes its limit.
///
/// Units   bytes
/// Threads any
/// Cost    one or two atomic operations
class budget {
 public:
  /// Needs   a name for messages
  budget(std::string name, std::size_t limit_bytes) : name_{std::move(name)}, limit_bytes_{limit_bytes} {}

  /// Takes bytes if they fit.
  [[nodiscard]] bool try_take(std::size_t size_bytes) noexcept {
    std::size_t used = used_bytes_.load(std::memory_order_relaxed);
    do {
      if (size_bytes > limit_bytes_ - used) return false;
    } while (!used_bytes_.compare_exchange_weak(used, used + size_bytes, std::memory_order_relaxed));
    raise_peak(used + size_bytes);
    return true;
  }

  /// Takes bytes.
  ///
  /// Errors  out_of_memory that names the budget, what was asked and what is free
  void take(std::size_t size_bytes) {
    if (!try_take(size_bytes)) throw exceeded(size_bytes);
  }

  /// Takes all that is left and says how much that was.
  [[nodiscard]] std::size_t take_rest() noexcept {
    const std::size_t before = used_bytes_.exchange(limit_bytes_, std::memory_order_relaxed);
    raise_peak(limit_bytes_);
    return limit_bytes_ - before;
  }

  /// Gives bytes back.
  ///
  /// Needs   that they were taken (asserted)
  void give_back(std::size_t size_bytes) noexcept {
    const std::size_t before = used_bytes_.fetch_sub(size_bytes, std::memory_order_relaxed);
    VTIER_ASSERT(before >= size_bytes, "more bytes were given back to a budget than were taken from it");
  }

  /// The error for a request that does not fit, for those who find out by other means than take().
  [[nodiscard]] out_of_memory exceeded(std::size_t asked_bytes) const {
    const std::size_t free = free_bytes();
    std::string asked_text = format_bytes(asked_bytes);
    std::string free_text = format_bytes(free);
    if (asked_text == free_text) {  // the difference is lost in rounding
      asked_text += " (" + std::to_string(asked_bytes) + " bytes)";
      free_text += " (" + std::to_string(free) + " bytes)";
    }
    return {name_, asked_bytes, free,
            name_ + ": asked " + asked_text + ", free " + free_text + " of a budget of " + format_bytes(limit_bytes_) +
                ": free something or raise the budget"};
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::size_t limit_bytes() const noexcept { return limit_bytes_; }
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_bytes_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::size_t free_bytes() const noexcept { return limit_bytes_ - used_bytes(); }
  [[nodiscard]] std::size_t peak_bytes() const noexcept { return peak_bytes_.load(std::memory_order_relaxed); }

 private:
  void raise_peak(std::size_t used) noexcept {
    std::size_t peak = peak_bytes_.load(std::memory_order_relaxed);
    while (peak < used && !peak_bytes_.compare_exchange_weak(peak, used, std::memory_order_relaxed)) {
    }
  }

  std::string name_;
  std::size_t limit_bytes_;
  std::atomic<std::size_t> used_bytes_{0};
  std::atomic<std::size_t> peak_bytes_{0};
};

}  // namespace vtier
