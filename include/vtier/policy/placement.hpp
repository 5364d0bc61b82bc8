// SPDX-License-Identifier: Apache-2.0
#pragma once

// In which tiers a tensor may be, and where it goes when it has to leave one: values only.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/residency/role.hpp>

namespace vtier {

/// Which tiers a tensor may live in, as bits: bit 0 is the fastest tier.
///
/// Tier 0 is where leases of a device are; a rule without it is for tensors that only the host touches.
struct placement_rule {
  std::uint32_t allowed_tiers = ~std::uint32_t{0};

  /// Whether a tier is allowed.
  [[nodiscard]] constexpr bool allows(std::size_t tier) const noexcept {
    return tier < 32 && ((allowed_tiers >> tier) & 1U) != 0;
  }
};

/// The rules of a hierarchy: a default for each role; a tensor can have its own.
///
/// Threads as any value
struct placement {
  std::array<placement_rule, role_count> by_role{};

  /// The rule of a role.
  [[nodiscard]] constexpr const placement_rule& of(role what) const noexcept {
    return by_role[static_cast<std::size_t>(what)];
  }
};

/// The tiers below `tier` that a tensor may move to, nearest first.
///
/// Needs   capacities in bytes by tier; size_bytes of the tensor
/// Gives   only tiers that could hold the tensor when empty
/// Threads any
[[nodiscard]] inline std::vector<std::size_t> tiers_below(std::size_t tier, std::size_t size_bytes,
                                                          const placement_rule& rule,
                                                          const std::vector<std::size_t>& capacities) {
  std::vector<std::size_t> result;
  for (std::size_t below = tier + 1; below < capacities.size(); ++below) {
    if (rule.allows(below) && capacities[below] >= size_bytes) result.push_back(below);
  }
  return result;
}

}  // namespace vtier
