// SPDX-License-Identifier: Apache-2.0
#pragma once

// How much memory this process may use: a container's limit, which the machine's own figures do not show and beyond
// which the kernel ends the process without a word.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include <vtier/core/config.hpp>
#include <vtier/topology/detail/control_groups.hpp>
#include <vtier/topology/detail/text_files.hpp>
#include <vtier/topology/sysfs.hpp>

namespace vtier {

/// A limit and where it stands.
///
/// Units   bytes
struct memory_limit {
  std::size_t size_bytes = 0;
  std::string file;
};

/// The memory limit of this process's control group or one above it.
///
/// Gives   the smallest on the way up; empty where there is none
/// Threads any
/// Source  the kernel's cgroup-v2 guide, memory.max; cgroup-v1 memory controller, memory.limit_in_bytes
[[nodiscard]] inline std::optional<memory_limit> group_memory_limit(const system_roots& roots = {}) {
  // Version 1 has no word for "none" but a number near 2^63.
  constexpr std::uint64_t none_min = std::uint64_t{1} << 60U;
  std::optional<memory_limit> smallest;
  detail::for_each_group(roots, "memory", [&](const std::string& directory, bool unified) {
    const std::string file = directory + (unified ? "/memory.max" : "/memory.limit_in_bytes");
    const auto limit = detail::read_number<std::uint64_t>(file);  // "max" is no number
    if (!limit || *limit >= none_min) return;
    if (!smallest || *limit < smallest->size_bytes) smallest = memory_limit{*limit, file};
  });
  return smallest;
}

}  // namespace vtier
