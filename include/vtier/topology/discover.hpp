// SPDX-License-Identifier: Apache-2.0
#pragma once

// The machine at hand: hwloc's view where vtier was built with it, completed from what the kernel shows.
//
// A file of its own so that machine.hpp stays free of outside libraries and of file reading.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/topology/affinity.hpp>
#include <vtier/topology/machine.hpp>
#include <vtier/topology/machine_parts.hpp>
#include <vtier/topology/sysfs.hpp>

#if VTIER_HAS_HWLOC
#include <vtier/topology/hwloc.hpp>
#endif

namespace vtier {

/// Completes one view of a machine by another: what the first does not know or does not list, the second adds.
///
/// hwloc builds differ in what they leave out: PCI domains above 16 bits, GPU memory nodes, links at their full rate,
/// CPUs that the process is not bound to.
///
/// Threads any
[[nodiscard]] inline machine_parts merge_parts(machine_parts first, const machine_parts& second) {
  if (second.numa_known) {
    for (const numa_node& other : second.nodes) {
      const auto same = std::find_if(first.nodes.begin(), first.nodes.end(),
                                     [&](const numa_node& node) { return node.os_index == other.os_index; });
      if (same == first.nodes.end()) {
        first.nodes.push_back(other);
      } else if (same->kind != node_kind::gpu_memory && same->kind != other.kind) {
        same->kind = other.kind;  // the kernel says which CPUs are a node's own, hwloc also lends them
        same->cpus = other.cpus;
      }
    }
  }
  if (!second.allowed_cpus.empty()) {
    first.allowed_cpus = common_cpus(first.allowed_cpus, second.allowed_cpus);
    for (numa_node& node : first.nodes) node.cpus = common_cpus(node.cpus, first.allowed_cpus);
  }
  if (first.distances.empty()) first.distances = second.distances;
  if (!first.memory_limit) first.memory_limit = second.memory_limit;
  for (const gpu& other : second.gpus) {
    const auto same = std::find_if(first.gpus.begin(), first.gpus.end(),
                                   [&](const gpu& item) { return item.address == other.address; });
    if (same == first.gpus.end()) {
      first.gpus.push_back(other);
      continue;
    }
    if (!same->node) same->node = other.node;
    if (!other.name.empty()) same->name = other.name;  // the driver's word, where there is a driver
    if (other.link_bytes_per_second) same->link_bytes_per_second = other.link_bytes_per_second;
  }
  for (const drive& other : second.drives) {
    const auto same = std::find_if(first.drives.begin(), first.drives.end(),
                                   [&](const drive& item) { return item.name == other.name; });
    if (same == first.drives.end()) {
      first.drives.push_back(other);
      continue;
    }
    if (!same->address) same->address = other.address;
    if (!same->node) same->node = other.node;
  }
  for (const std::string& note : second.notes) {
    if (std::find(first.notes.begin(), first.notes.end(), note) == first.notes.end()) first.notes.push_back(note);
  }
  return first;
}

inline machine machine::discover() {
  machine_parts kernel = read_sysfs();
#if VTIER_HAS_HWLOC
  try {
    detail::hwloc_finding found = detail::read_hwloc_system();
    if (!found.this_system) {
      found.parts.notes.emplace_back("hwloc's environment variables name another machine than this one");
      return machine{std::move(found.parts)};
    }
    if (kernel.numa_known) return machine{merge_parts(std::move(found.parts), kernel)};
  } catch (const error& problem) {
    kernel.notes.push_back(std::string{"without hwloc: "} + problem.what());
  }
#endif
  return machine{std::move(kernel)};
}

}  // namespace vtier
