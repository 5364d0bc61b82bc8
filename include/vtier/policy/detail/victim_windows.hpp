// SPDX-License-Identifier: Apache-2.0
#pragma once

// The window of neighbours that costs least, for any order of what may leave first.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/policy/eviction.hpp>

namespace vtier::detail {

/// Whether a stretch can be had without losing or moving anything.
[[nodiscard]] constexpr bool costs_nothing(const stretch& s) noexcept {
  return s.state == occupancy::free || s.state == occupancy::stale || s.state == occupancy::duplicate;
}

/// The window whose dearest stretch is the cheapest; of those the one that writes the fewest bytes, then the first.
///
/// Needs   price(stretch), comparable; stretches that cost nothing have the least price
/// Cost    O(stretches), one allocation of that order at most
template <class Price>
[[nodiscard]] std::optional<victim_window> cheapest_window(std::span<const stretch> tier, std::size_t size_bytes,
                                                           const Price& price) {
  using price_type = decltype(price(tier.front()));
  const auto written = [](const stretch& s) { return s.state == occupancy::dirty ? s.size_bytes : 0; };
  std::optional<victim_window> best;
  price_type best_price{};
  std::size_t best_dirty_bytes = 0;

  std::vector<std::size_t> dearest;  // from `front` on, indices of the window with falling price
  std::size_t front = 0;             // the window's dearest
  std::size_t first = 0;
  std::size_t window_bytes = 0;
  std::size_t dirty_bytes = 0;
  for (std::size_t last = 0; last < tier.size(); ++last) {
    if (tier[last].state == occupancy::held) {
      first = last + 1;
      window_bytes = 0;
      dirty_bytes = 0;
      dearest.clear();
      front = 0;
      continue;
    }
    window_bytes += tier[last].size_bytes;
    dirty_bytes += written(tier[last]);
    while (dearest.size() > front && price(tier[dearest.back()]) <= price(tier[last])) dearest.pop_back();
    dearest.push_back(last);
    while (window_bytes - tier[first].size_bytes >= size_bytes && first < last) {
      window_bytes -= tier[first].size_bytes;
      dirty_bytes -= written(tier[first]);
      if (dearest[front] == first) ++front;
      ++first;
    }
    if (window_bytes < size_bytes) continue;
    const price_type window_price = price(tier[dearest[front]]);
    if (!best || window_price < best_price || (window_price == best_price && dirty_bytes < best_dirty_bytes)) {
      best = victim_window{first, last + 1};
      best_price = window_price;
      best_dirty_bytes = dirty_bytes;
    }
  }
  return best;
}

}  // namespace vtier::detail
