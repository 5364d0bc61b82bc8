// SPDX-License-Identifier: Apache-2.0
#pragma once

// Counts what goes from one tier to another: bytes by role, what comes back to a tier that had let it go, and for how
// long anything is in flight. A file of its own, so that the mover only says what starts and what ends.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <vtier/core/config.hpp>
#include <vtier/residency/block.hpp>
#include <vtier/runtime/statistics.hpp>

namespace vtier::detail {

/// The traffic of a link.
///
/// Units   ns in the device's time
/// Threads the hierarchy's lock
class link_counter {
 public:
  /// A transfer of a tensor's newest bytes starts, after so many whole steps.
  ///
  /// Needs   the target as it is before the bytes are there
  template <class Event>
  void start(const block<Event>& b, std::size_t from, std::size_t to, std::uint64_t step) noexcept {
    const auto role = static_cast<std::size_t>(b.what());
    const auto& target = b.in(to);
    sums_.moved_bytes += b.size_bytes();
    sums_.role_moved_bytes[role] += b.size_bytes();
    ++sums_.transfer_count;
    if (to > from || target.left_version != b.version() || step - target.left_step > 1) return;
    sums_.swapped_bytes += b.size_bytes();
    sums_.role_swapped_bytes[role] += b.size_bytes();
    if (swapped_in_ == step + 1) return;
    swapped_in_ = step + 1;
    ++sums_.swapped_step_count;
  }

  /// A transfer is in flight from then on.
  void begin(std::int64_t now_ns) noexcept {
    if (in_flight_++ == 0) since_ns_ = now_ns;
  }

  /// One of them is over.
  void end(std::int64_t now_ns) noexcept {
    VTIER_ASSERT(in_flight_ > 0, "a transfer ended on a link that has none in flight");
    if (--in_flight_ == 0) sums_.busy_ns += (std::max)(std::int64_t{0}, now_ns - since_ns_);
  }

  /// What has been counted by then, what is in flight included; without names.
  [[nodiscard]] link_statistics at(std::int64_t now_ns) const {
    link_statistics result = sums_;
    if (in_flight_ > 0) result.busy_ns += (std::max)(std::int64_t{0}, now_ns - since_ns_);
    return result;
  }

 private:
  link_statistics sums_;
  std::size_t in_flight_ = 0;
  std::int64_t since_ns_ = 0;
  std::uint64_t swapped_in_ = 0;  // the last step in which bytes came back, counted from 1
};

}  // namespace vtier::detail
