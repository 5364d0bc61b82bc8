// SPDX-License-Identifier: Apache-2.0
#pragma once

// Least recently used, for windows: for programs of which nothing is known.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <vtier/core/config.hpp>
#include <vtier/policy/detail/victim_windows.hpp>
#include <vtier/policy/eviction.hpp>

namespace vtier {

/// Evicts the window whose latest use is the earliest; what costs nothing to drop counts as never used.
///
/// Cost    O(stretches), one allocation of that order at most
class lru {
 public:
  [[nodiscard]] std::optional<victim_window> choose(std::span<const stretch> tier, std::size_t size_bytes) const {
    return detail::cheapest_window(tier, size_bytes, [](const stretch& s) {
      return detail::costs_nothing(s) ? std::uint64_t{0} : s.last_use + 1;
    });
  }
};

static_assert(eviction_policy<lru>);

}  // namespace vtier
