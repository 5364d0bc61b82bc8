// SPDX-License-Identifier: Apache-2.0
#pragma once

// Offsets for allocations whose lifetimes are known before the first of them is made: a recorded step.
//
// Whoever knows when everything is born and dies needs no allocator while it runs: all of it has a fixed place in one
// range, and the range is hardly longer than what is live at the worst moment. Finding the shortest range is NP-hard
// (dynamic storage allocation; Garey and Johnson, SR2); this is lowest fit in several orders, mended from the top down.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>

namespace vtier {

/// An allocation and when it is live: from the moment `begin` until just before `end`.
///
/// Units   bytes; moments are counted in anything that grows, such as the calls of a step
struct lifetime {
  std::size_t size_bytes = 0;
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Where each allocation lies.
///
/// Units   bytes from the start of one range
struct packing {
  std::vector<std::size_t> offset_bytes;  // one for each lifetime, in their order
  std::size_t size_bytes = 0;             // of the range
  std::size_t live_bytes_max = 0;         // what is live at the worst moment: no range is shorter than that
};

/// Limits of a packing.
struct pack_options {
  std::size_t alignment_bytes = 256;  // sizes are rounded up to it
  std::size_t comparison_count_max =
      400'000'000;  // when the search for a shorter range ends; one order is always tried
};

namespace detail {

/// One attempt after the other to pack the same lifetimes.
class packer_of_lifetimes {
 public:
  explicit packer_of_lifetimes(std::vector<lifetime> all) : all_{std::move(all)}, offsets_(all_.size()) {}

  /// Places everything in one order, each at the lowest offset that nothing placed before it uses while it is live.
  std::size_t place(const std::vector<std::size_t>& order) {
    std::size_t top = 0;
    placed_.clear();
    for (const std::size_t i : order) {
      const lifetime& one = all_[i];
      std::size_t offset = 0;
      if (one.size_bytes > 0 && one.begin < one.end) {
        for (const std::size_t other : placed_) {  // in order of offset
          const lifetime& there = all_[other];
          if (there.begin >= one.end || one.begin >= there.end) continue;
          if (offsets_[other] >= offset + one.size_bytes) break;
          offset = (std::max)(offset, offsets_[other] + there.size_bytes);
        }
        const auto behind = std::upper_bound(placed_.begin(), placed_.end(), offset,
                                             [this](std::size_t at, std::size_t b) { return at < offsets_[b]; });
        placed_.insert(behind, i);
      }
      comparison_count += placed_.size();
      offsets_[i] = offset;
      top = (std::max)(top, offset + one.size_bytes);
    }
    return top;
  }

  [[nodiscard]] const std::vector<std::size_t>& offsets() const noexcept { return offsets_; }

  std::size_t comparison_count = 0;

 private:
  std::vector<lifetime> all_;
  std::vector<std::size_t> offsets_;
  std::vector<std::size_t> placed_;  // in order of offset
};

/// The most bytes that are live at one moment.
[[nodiscard]] inline std::size_t live_bytes_max(const std::vector<lifetime>& all) {
  std::vector<std::pair<std::size_t, std::size_t>> ends;
  std::vector<std::size_t> by_begin;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].size_bytes == 0 || all[i].begin >= all[i].end) continue;
    by_begin.push_back(i);
    ends.emplace_back(all[i].end, all[i].size_bytes);
  }
  std::sort(ends.begin(), ends.end());
  std::sort(by_begin.begin(), by_begin.end(),
            [&](std::size_t a, std::size_t b) { return all[a].begin < all[b].begin; });
  std::size_t live = 0;
  std::size_t most = 0;
  std::size_t gone = 0;
  for (const std::size_t i : by_begin) {
    for (; gone < ends.size() && ends[gone].first <= all[i].begin; ++gone) live -= ends[gone].second;
    live += all[i].size_bytes;
    most = (std::max)(most, live);
  }
  return most;
}

}  // namespace detail

/// Gives every allocation of a step a fixed place in one range.
///
/// Needs   begin <= end in each; what is never live or has no bytes gets the offset 0
/// Gives   places such that no two allocations that are live at the same moment share a byte; the same lifetimes give
///         the same places
/// Errors  usage_error for an end before its begin, an alignment that is not a power of two, or sizes whose sum passes
///         64 bits
/// Threads any
/// Cost    O(n^2) for one order of n allocations; orders are tried until the range is as short as can be or the
///         comparisons are used up
[[nodiscard]] inline packing pack(std::span<const lifetime> lifetimes, const pack_options& options = {}) {
  if (!is_power_of_two(options.alignment_bytes)) {
    throw usage_error("pack: the alignment of " + std::to_string(options.alignment_bytes) + " is not a power of two");
  }
  std::vector<lifetime> all(lifetimes.begin(), lifetimes.end());
  std::size_t sum = 0;
  for (lifetime& one : all) {
    if (one.end < one.begin) throw usage_error("pack: a lifetime ends before it begins");
    const auto rounded = checked_align_up(one.size_bytes, options.alignment_bytes);
    const auto total = rounded ? checked_add(sum, *rounded) : std::nullopt;
    if (!total) throw usage_error("pack: the sizes together are more than 64 bits can count");
    one.size_bytes = *rounded;
    sum = *total;
  }

  packing best;
  best.live_bytes_max = detail::live_bytes_max(all);
  best.size_bytes = ~std::size_t{0};
  detail::packer_of_lifetimes packer{all};
  std::vector<std::size_t> best_order;
  const auto attempt = [&](const std::vector<std::size_t>& order) {
    const std::size_t top = packer.place(order);
    if (top >= best.size_bytes) return false;
    best.size_bytes = top;
    best.offset_bytes = packer.offsets();
    best_order = order;
    return true;
  };
  const auto done = [&] {
    return best.size_bytes <= best.live_bytes_max || packer.comparison_count >= options.comparison_count_max;
  };

  const auto length = [&](std::size_t i) { return all[i].end - all[i].begin; };
  const auto area = [&](std::size_t i) {
    return static_cast<double>(length(i)) * static_cast<double>(all[i].size_bytes);
  };
  const auto size = [&](std::size_t i) { return all[i].size_bytes; };
  std::vector<std::size_t> order(all.size());
  const auto attempt_by = [&](const auto& before) {
    if (!best_order.empty() && done()) return;
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), before);
    attempt(order);
  };
  attempt_by([&](std::size_t a, std::size_t b) { return length(a) > length(b); });
  attempt_by([&](std::size_t a, std::size_t b) { return size(a) > size(b); });
  attempt_by([&](std::size_t a, std::size_t b) { return area(a) > area(b); });
  attempt_by([&](std::size_t a, std::size_t b) { return all[a].begin < all[b].begin; });
  attempt_by([&](std::size_t a, std::size_t b) { return all[a].end > all[b].end; });

  // What sticks out at the top is placed earlier, one place and then all the way, until nothing gets better by that.
  for (bool better = true; better && !done();) {
    better = false;
    const std::vector<std::size_t> from = best_order;
    for (std::size_t at = from.size(); at > 0 && !better && !done(); --at) {
      const std::size_t one = from[at - 1];
      if (best.offset_bytes[one] + all[one].size_bytes < best.size_bytes) continue;
      for (std::size_t to : {std::size_t{0}, at / 2, at / 4 * 3, at - (at > 1 ? 2 : 1)}) {
        order = from;
        order.erase(order.begin() + static_cast<std::ptrdiff_t>(at - 1));
        order.insert(order.begin() + static_cast<std::ptrdiff_t>((std::min)(to, order.size())), one);
        if ((better = attempt(order)) || done()) break;
      }
    }
  }
  if (all.empty()) best.size_bytes = 0;
  return best;
}

}  // namespace vtier
