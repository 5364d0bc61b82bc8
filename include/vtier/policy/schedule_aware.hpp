// SPDX-License-Identifier: Apache-2.0
#pragma once

// Furthest next use, for windows: what is known of the future says who leaves, and least recently used where nothing
// is.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include <vtier/core/config.hpp>
#include <vtier/policy/detail/victim_windows.hpp>
#include <vtier/policy/eviction.hpp>

namespace vtier {

/// Evicts the window whose soonest next use is the furthest away; what has none known counts as never used again, and
/// among such the latest use decides. What costs nothing to drop goes first.
///
/// Cost    O(stretches), one allocation of that order at most
/// Source  Belady, A study of replacement algorithms for a virtual-storage computer, 1966
class schedule_aware {
 public:
  [[nodiscard]] std::optional<victim_window> choose(std::span<const stretch> tier, std::size_t size_bytes) const {
    return detail::cheapest_window(tier, size_bytes, [](const stretch& s) {
      using price = std::pair<std::uint64_t, std::uint64_t>;
      return detail::costs_nothing(s) ? price{0, 0} : price{unknown_use - s.next_use, s.last_use + 1};
    });
  }
};

static_assert(eviction_policy<schedule_aware>);

}  // namespace vtier
