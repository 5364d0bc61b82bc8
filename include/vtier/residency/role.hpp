// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a tensor is for: the words in which placement defaults, reports and error messages count bytes.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <vtier/core/config.hpp>

namespace vtier {

/// What a tensor is for.
enum class role : std::uint8_t { parameter, gradient, optimizer, activation, workspace };

/// How many roles there are.
inline constexpr std::size_t role_count = 5;

/// All roles in the order of their values.
inline constexpr std::array<role, role_count> all_roles{role::parameter, role::gradient, role::optimizer,
                                                        role::activation, role::workspace};

/// The name of a role, as the enumerator is written.
///
/// Threads any
[[nodiscard]] constexpr std::string_view name(role what) noexcept {
  switch (what) {
    case role::parameter: return "parameter";
    case role::gradient: return "gradient";
    case role::optimizer: return "optimizer";
    case role::activation: return "activation";
    case role::workspace: return "workspace";
  }
  return "unknown";
}

}  // namespace vtier
