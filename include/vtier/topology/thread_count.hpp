// SPDX-License-Identifier: Apache-2.0
#pragma once

// How many threads to start by default.
//
// Three limits say something else each: the CPUs that the process is bound to, the group's CPU set (which the kernel
// folds into the first) and the group's time quota. Reading one of them gives twice too many.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include <vtier/core/config.hpp>
#include <vtier/topology/affinity.hpp>
#include <vtier/topology/detail/control_groups.hpp>
#include <vtier/topology/detail/text_files.hpp>
#include <vtier/topology/sysfs.hpp>

namespace vtier {

/// The time quota of this process's control group or one above it, in whole CPUs, at least one.
///
/// Gives   the smallest on the way up, a part of a CPU dropped; empty where there is none
/// Threads any
/// Source  cgroups(7); the kernel's cgroup-v2 guide, cpu.max
[[nodiscard]] inline std::optional<std::size_t> cpu_quota(const system_roots& roots = {}) {
  std::optional<std::size_t> smallest;
  const auto take = [&](std::string_view quota_text, std::string_view period_text) {
    const auto quota = detail::parse_number<std::uint64_t>(quota_text);  // "max" and "-1" are no numbers
    const auto period = detail::parse_number<std::uint64_t>(period_text);
    if (!quota || !period || *period == 0) return;
    const std::size_t cpus = (std::max)(*quota / *period, std::uint64_t{1});
    smallest = smallest ? (std::min)(*smallest, cpus) : cpus;
  };
  detail::for_each_group(roots, "cpu", [&](const std::string& directory, bool unified) {
    if (unified) {
      const std::string both = detail::read_text(directory + "/cpu.max").value_or(std::string{});
      const std::size_t blank = (std::min)(both.find(' '), both.size());
      take(std::string_view{both}.substr(0, blank), detail::trimmed(std::string_view{both}.substr(blank)));
    } else {
      take(detail::read_text(directory + "/cpu.cfs_quota_us").value_or(std::string{}),
           detail::read_text(directory + "/cpu.cfs_period_us").value_or(std::string{}));
    }
  });
  return smallest;
}

/// How many threads to start: OMP_NUM_THREADS where it is set, else the smaller of usable CPUs and quota.
///
/// Gives   at least one
/// Threads any, while no other changes the environment; counts the CPUs of the calling thread
[[nodiscard]] inline std::size_t default_thread_count(const system_roots& roots = {}) {
  if (const char* const text = std::getenv("OMP_NUM_THREADS"); text != nullptr) {
    const std::string_view all{text};  // may be a list, one number for each level
    const auto count = detail::parse_number<std::size_t>(detail::trimmed(all.substr(0, all.find(','))));
    if (count && *count > 0) return *count;
  }
  const std::size_t cpus = (std::max)(bound_cpus().size(), std::size_t{1});
  return (std::min)(cpus, cpu_quota(roots).value_or(cpus));
}

}  // namespace vtier
