// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is close to what, and binding a thread there.
//
// The questions are pure functions over machine values, so that every odd machine is a test. Binding is here too
// because it is the other half of the answer: a set of CPUs, cut down to those that this thread may use.

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/topology/machine_parts.hpp>

namespace vtier {

/// The node with this system number; null where there is none.
///
/// Gives   a pointer into parts
/// Threads any
[[nodiscard]] inline const numa_node* find_node(const machine_parts& parts, unsigned os_index) noexcept {
  const auto found = std::find_if(parts.nodes.begin(), parts.nodes.end(),
                                  [&](const numa_node& node) { return node.os_index == os_index; });
  return found == parts.nodes.end() ? nullptr : &*found;
}

/// Whether memory may be placed there without being asked for by name: ordinary memory of CPUs, and not empty.
///
/// Threads any
[[nodiscard]] inline bool is_default_memory(const numa_node& node) noexcept {
  return node.kind == node_kind::dram && node.memory_bytes > 0;
}

/// The distance between two nodes; empty where the system does not say.
///
/// Units   relative: 10 is a node's distance to itself
/// Threads any
[[nodiscard]] inline std::optional<unsigned> node_distance_between(const machine_parts& parts, unsigned from,
                                                                   unsigned to) noexcept {
  for (const node_distance& entry : parts.distances) {
    if (entry.from == from && entry.to == to) return entry.value;
  }
  if (from == to && find_node(parts, from) != nullptr) return 10U;
  return std::nullopt;
}

/// The nodes to take general memory from, the closest to `from` first, then the larger, then the lower number.
///
/// Gives   system numbers of nodes with CPUs and memory; where no node has both, of memory-only nodes, never of GPU
///         memory or of an empty node
/// Threads any
[[nodiscard]] inline std::vector<unsigned> nodes_by_distance(const machine_parts& parts, unsigned from) {
  const bool any_default = std::any_of(parts.nodes.begin(), parts.nodes.end(), is_default_memory);
  std::vector<const numa_node*> usable;
  for (const numa_node& node : parts.nodes) {
    const bool spare = !any_default && node.kind == node_kind::memory_only && node.memory_bytes > 0;
    if (is_default_memory(node) || spare) usable.push_back(&node);
  }
  const auto distance = [&](const numa_node& node) {
    if (node.os_index == from) return 0U;  // some virtual machines say 10 for every pair
    return node_distance_between(parts, from, node.os_index).value_or((std::numeric_limits<unsigned>::max)());
  };
  std::sort(usable.begin(), usable.end(), [&](const numa_node* a, const numa_node* b) {
    const unsigned a_distance = distance(*a);
    const unsigned b_distance = distance(*b);
    if (a_distance != b_distance) return a_distance < b_distance;
    if (a->memory_bytes != b->memory_bytes) return a->memory_bytes > b->memory_bytes;
    return a->os_index < b->os_index;
  });
  std::vector<unsigned> result;
  for (const numa_node* node : usable) result.push_back(node->os_index);
  return result;
}

/// The node for memory that is close to nothing in particular: the first with CPUs and memory.
///
/// Gives   empty where the system says nothing about nodes, or none has memory
/// Threads any
[[nodiscard]] inline std::optional<unsigned> default_node(const machine_parts& parts) {
  if (!parts.numa_known) return std::nullopt;
  for (const numa_node& node : parts.nodes) {
    if (is_default_memory(node)) return node.os_index;
  }
  for (const numa_node& node : parts.nodes) {
    if (node.kind != node_kind::dram) continue;  // CPUs without memory: what is closest to them
    const auto closest = nodes_by_distance(parts, node.os_index);
    return closest.empty() ? std::nullopt : std::optional<unsigned>{closest.front()};
  }
  const auto any = nodes_by_distance(parts, 0);
  return any.empty() ? std::nullopt : std::optional<unsigned>{any.front()};
}

/// The node whose memory is closest to something on node `locality`.
///
/// Gives   the node itself where it has CPUs and memory, else the closest such; for an unknown locality the only such
///         node, and empty where there are several
/// Threads any
[[nodiscard]] inline std::optional<unsigned> nearest_memory(const machine_parts& parts,
                                                            std::optional<unsigned> locality) {
  if (!parts.numa_known) return std::nullopt;
  const bool known = locality && find_node(parts, *locality) != nullptr;
  const auto closest = nodes_by_distance(parts, known ? *locality : 0U);
  if (closest.empty() || (!known && closest.size() > 1)) return std::nullopt;
  return closest.front();
}

/// The CPUs for threads that work on a node's memory.
///
/// Gives   system numbers, only those that this process may use: the node's own, or for a node without CPUs those of
///         the closest node with some; empty where none of them may be used or there is no such node
/// Threads any
[[nodiscard]] inline std::vector<unsigned> cpus_for_node(const machine_parts& parts, unsigned os_index) {
  const numa_node* const node = find_node(parts, os_index);
  if (node == nullptr) return {};
  if (node->kind == node_kind::dram) return node->cpus;
  const numa_node* best = nullptr;
  unsigned best_distance = 0;
  for (const numa_node& other : parts.nodes) {
    if (other.kind != node_kind::dram) continue;
    const unsigned distance =
        node_distance_between(parts, os_index, other.os_index).value_or((std::numeric_limits<unsigned>::max)());
    if (best == nullptr || distance < best_distance) {
      best = &other;
      best_distance = distance;
    }
  }
  return best == nullptr ? std::vector<unsigned>{} : best->cpus;
}

/// What two sets of CPUs have in common, in rising order.
///
/// Threads any
[[nodiscard]] inline std::vector<unsigned> common_cpus(std::span<const unsigned> a, std::span<const unsigned> b) {
  std::vector<unsigned> result;
  for (const unsigned cpu : a) {
    if (std::find(b.begin(), b.end(), cpu) != b.end()) result.push_back(cpu);
  }
  std::sort(result.begin(), result.end());
  result.erase(std::unique(result.begin(), result.end()), result.end());
  return result;
}

/// The CPUs that the calling thread may run on now, in rising order.
///
/// Gives   empty where the system does not say
/// Threads any: answers for the calling thread
[[nodiscard]] inline std::vector<unsigned> bound_cpus() {
  constexpr std::size_t word_bits = sizeof(unsigned long) * 8;
  // The kernel refuses a mask shorter than its own; 2^20 CPUs are enough for any.
  for (std::size_t words = 1024 / word_bits; words <= (1U << 20U) / word_bits; words *= 4) {
    std::vector<unsigned long> mask(words, 0UL);
    if (::sched_getaffinity(0, words * sizeof(unsigned long), reinterpret_cast<cpu_set_t*>(mask.data())) != 0) {
      if (errno == EINVAL) continue;
      return {};
    }
    std::vector<unsigned> cpus;
    for (std::size_t bit = 0; bit < words * word_bits; ++bit) {
      if ((mask[bit / word_bits] >> (bit % word_bits) & 1UL) != 0) cpus.push_back(static_cast<unsigned>(bit));
    }
    return cpus;
  }
  return {};
}

/// Binds the calling thread to those of `cpus` that it may run on now.
///
/// Gives   false where there is none or the system refuses; the thread then stays as it was. bound_cpus() reads back
/// Threads any: binds the calling thread; it can only narrow what the thread was started with
[[nodiscard]] inline bool bind_this_thread(std::span<const unsigned> cpus) {
  const std::vector<unsigned> usable = common_cpus(cpus, bound_cpus());
  if (usable.empty()) return false;
  constexpr std::size_t word_bits = sizeof(unsigned long) * 8;
  std::vector<unsigned long> mask(usable.back() / word_bits + 1, 0UL);
  for (const unsigned cpu : usable) mask[cpu / word_bits] |= 1UL << (cpu % word_bits);
  return ::sched_setaffinity(0, mask.size() * sizeof(unsigned long), reinterpret_cast<cpu_set_t*>(mask.data())) == 0;
}

}  // namespace vtier
