// SPDX-License-Identifier: Apache-2.0
#pragma once

// Questions to the map of a tier that are no policy's to answer.

#include <cstddef>
#include <optional>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/policy/eviction.hpp>

namespace vtier::detail {

/// The window at the highest addresses, whatever it costs: for the once that a block comes to stay.
[[nodiscard]] inline std::optional<victim_window> highest_window(const std::vector<stretch>& tier,
                                                                 std::size_t size_bytes) {
  std::size_t last = tier.size();
  std::size_t bytes = 0;
  for (std::size_t i = tier.size(); i-- > 0;) {
    if (tier[i].state == occupancy::held) {
      last = i;
      bytes = 0;
      continue;
    }
    bytes += tier[i].size_bytes;
    if (bytes >= size_bytes) return victim_window{i, last};
  }
  return std::nullopt;
}

/// The bytes of a tier that nothing holds where they are.
[[nodiscard]] inline std::size_t movable_bytes(const std::vector<stretch>& tier) noexcept {
  std::size_t sum = 0;
  for (const stretch& s : tier) sum += s.state == occupancy::held ? 0 : s.size_bytes;
  return sum;
}

}  // namespace vtier::detail
