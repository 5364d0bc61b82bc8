// SPDX-License-Identifier: Apache-2.0
#pragma once

// How many bytes of a tier are spoken for at each tick of a lap, and where there is room for more.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <vtier/core/config.hpp>

namespace vtier::detail {

/// Bytes by tick: sums over ranges and maxima over ranges.
///
/// Units   bytes; ticks from 0 to tick_count
/// Threads one at a time
/// Cost    each call O(log ticks)
class room_profile {
 public:
  explicit room_profile(std::size_t tick_count)
      : count_{tick_count},
        width_{std::bit_ceil((std::max)(tick_count, std::size_t{1}))},
        most_(2 * width_, 0),
        added_(2 * width_, 0) {}

  /// Adds bytes to the ticks [first, last).
  void add(std::size_t first, std::size_t last, std::int64_t bytes) {
    if (first < last) add(1, 0, width_, first, last, bytes);
  }

  /// The most bytes at any of the ticks [first, last); none for no ticks.
  [[nodiscard]] std::int64_t most(std::size_t first, std::size_t last) const {
    return first < last ? most(1, 0, width_, first, last) : 0;
  }

  /// The same on the circle: a range whose last tick is not behind its first goes over the end of the lap.
  void add_around(std::size_t first, std::size_t last, std::int64_t bytes) {
    if (first < last) return add(first, last, bytes);
    add(first, count_, bytes);
    add(0, last, bytes);
  }
  [[nodiscard]] std::int64_t most_around(std::size_t first, std::size_t last) const {
    return first < last ? most(first, last) : (std::max)(most(first, count_), most(0, last));
  }

  /// The first tick p of [low, high) such that none of [p, high) has more than so many bytes; high where there is none.
  [[nodiscard]] std::size_t earliest(std::size_t low, std::size_t high, std::int64_t bytes_max) const {
    if (low >= high) return high;
    const std::size_t over = last_over(1, 0, width_, low, high, bytes_max, 0);
    return over == none ? low : over + 1;
  }

 private:
  static constexpr std::size_t none = ~std::size_t{0};

  void add(std::size_t node, std::size_t from, std::size_t to, std::size_t first, std::size_t last,
           std::int64_t bytes) {
    if (first <= from && to <= last) {
      most_[node] += bytes;
      added_[node] += bytes;
      return;
    }
    const std::size_t middle = (from + to) / 2;
    if (first < middle) add(2 * node, from, middle, first, last, bytes);
    if (middle < last) add(2 * node + 1, middle, to, first, last, bytes);
    most_[node] = (std::max)(most_[2 * node], most_[2 * node + 1]) + added_[node];
  }

  [[nodiscard]] std::int64_t most(std::size_t node, std::size_t from, std::size_t to, std::size_t first,
                                  std::size_t last) const {
    if (first <= from && to <= last) return most_[node];
    const std::size_t middle = (from + to) / 2;
    if (last <= middle) return added_[node] + most(2 * node, from, middle, first, last);
    if (first >= middle) return added_[node] + most(2 * node + 1, middle, to, first, last);
    return added_[node] +
           (std::max)(most(2 * node, from, middle, first, last), most(2 * node + 1, middle, to, first, last));
  }

  // The last tick of [first, last) with more bytes than that.
  [[nodiscard]] std::size_t last_over(std::size_t node, std::size_t from, std::size_t to, std::size_t first,
                                      std::size_t last, std::int64_t bytes_max, std::int64_t above) const {
    if (to <= first || last <= from || most_[node] + above <= bytes_max) return none;
    if (to - from == 1) return from;
    const std::size_t middle = (from + to) / 2;
    const std::int64_t inner = above + added_[node];
    const std::size_t right = last_over(2 * node + 1, middle, to, first, last, bytes_max, inner);
    return right != none ? right : last_over(2 * node, from, middle, first, last, bytes_max, inner);
  }

  std::size_t count_;
  std::size_t width_;
  std::vector<std::int64_t> most_;   // of a node's ticks, what its ancestors added apart
  std::vector<std::int64_t> added_;  // to all of a node's ticks at once
};

}  // namespace vtier::detail
