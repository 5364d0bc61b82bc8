// SPDX-License-Identifier: Apache-2.0
#pragma once

// How much memory this process may use: a container's limit, which the machine's own figures do not show and beyond
// which the kernel ends the process without a word.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/topology/detail/control_groups.hpp>
#include <vtier/topology/detail/text_files.hpp>
#include <vtier/topology/machine_parts.hpp>

namespace vtier {

/// The memory limits of this process's control group and those above it.
///
/// Gives   the nearest first; none where there is no limit
/// Threads any
/// Source  the kernel's cgroup-v2 guide, memory.max; cgroup-v1 memory controller, memory.limit_in_bytes
[[nodiscard]] inline std::vector<memory_limit> group_memory_limits(const system_roots& roots = {}) {
  // Version 1 has no word for "none" but a number near 2^63.
  constexpr std::uint64_t none_min = std::uint64_t{1} << 60U;
  std::vector<memory_limit> limits;
  detail::for_each_group(roots, "memory", [&](const std::string& directory, bool unified) {
    std::string file = directory + (unified ? "/memory.max" : "/memory.limit_in_bytes");
    const auto limit = detail::read_number<std::uint64_t>(file);  // "max" is no number
    if (!limit || *limit >= none_min) return;
    // The count of all use has files in it, which the kernel lets go.
    const auto counts = detail::read_text(directory + "/memory.stat").value_or(std::string{});
    const auto used = detail::named_number<std::uint64_t>(counts, unified ? "anon" : "total_rss");
    limits.push_back({*limit, used.value_or(0), std::move(file)});
  });
  return limits;
}

/// The smallest of these limits; empty where there is none.
///
/// Threads any
[[nodiscard]] inline std::optional<memory_limit> group_memory_limit(const system_roots& roots = {}) {
  const auto limits = group_memory_limits(roots);
  const auto smallest = std::min_element(limits.begin(), limits.end(),
                                         [](const auto& a, const auto& b) { return a.size_bytes < b.size_bytes; });
  return smallest == limits.end() ? std::nullopt : std::optional{*smallest};
}

}  // namespace vtier
