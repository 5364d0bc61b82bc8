// SPDX-License-Identifier: Apache-2.0
#pragma once

// Least recently used, for windows: the fallback when nothing is known about the future.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>

#include <vtier/core/config.hpp>
#include <vtier/policy/eviction.hpp>

namespace vtier {

/// Evicts the window whose latest use is the earliest; what costs nothing to drop counts as never used.
///
/// Cost    O(stretches), one allocation of that order at most
class lru {
 public:
  [[nodiscard]] std::optional<victim_window> choose(std::span<const stretch> tier, std::size_t size_bytes) const {
    std::optional<victim_window> best;
    std::uint64_t best_use = 0;
    std::size_t best_dirty_bytes = 0;

    std::deque<std::size_t> latest;  // indices of the window with falling last use; the front is the window's latest
    std::size_t first = 0;
    std::size_t window_bytes = 0;
    std::size_t dirty_bytes = 0;
    for (std::size_t last = 0; last < tier.size(); ++last) {
      if (tier[last].state == occupancy::held) {
        first = last + 1;
        window_bytes = 0;
        dirty_bytes = 0;
        latest.clear();
        continue;
      }
      window_bytes += tier[last].size_bytes;
      dirty_bytes += written(tier[last]);
      while (!latest.empty() && use(tier[latest.back()]) <= use(tier[last])) latest.pop_back();
      latest.push_back(last);
      while (window_bytes - tier[first].size_bytes >= size_bytes && first < last) {
        window_bytes -= tier[first].size_bytes;
        dirty_bytes -= written(tier[first]);
        if (latest.front() == first) latest.pop_front();
        ++first;
      }
      if (window_bytes < size_bytes) continue;
      const std::uint64_t window_use = use(tier[latest.front()]);
      if (!best || window_use < best_use || (window_use == best_use && dirty_bytes < best_dirty_bytes)) {
        best = victim_window{first, last + 1};
        best_use = window_use;
        best_dirty_bytes = dirty_bytes;
      }
    }
    return best;
  }

 private:
  static bool costs_nothing(const stretch& s) noexcept {
    return s.state == occupancy::free || s.state == occupancy::stale || s.state == occupancy::duplicate;
  }
  static std::uint64_t use(const stretch& s) noexcept { return costs_nothing(s) ? 0 : s.last_use + 1; }
  static std::size_t written(const stretch& s) noexcept { return s.state == occupancy::dirty ? s.size_bytes : 0; }
};

static_assert(eviction_policy<lru>);

}  // namespace vtier
