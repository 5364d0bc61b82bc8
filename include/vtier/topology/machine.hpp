// SPDX-License-Identifier: Apache-2.0
#pragma once

// The machine as one value: what it has, and what is close to what.
//
// It knows no outside library and reads no file: `discover.hpp` makes one of the machine at hand, `sysfs.hpp` and
// `hwloc.hpp` of a directory tree or an XML file, and a test of values that it writes down.

#include <algorithm>
#include <concepts>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/topology/affinity.hpp>
#include <vtier/topology/machine_parts.hpp>
#include <vtier/topology/pci_address.hpp>

namespace vtier {

/// Nodes, GPUs and drives of one machine, and questions about them. Does not change once made.
///
/// Threads as any value
class machine {
 public:
  /// Takes the parts: nodes in order of their numbers, each kept once; references to nodes that do not exist dropped.
  explicit machine(machine_parts parts) : parts_{std::move(parts)} {
    auto& nodes = parts_.nodes;
    std::stable_sort(nodes.begin(), nodes.end(),
                     [](const numa_node& a, const numa_node& b) { return a.os_index < b.os_index; });
    nodes.erase(std::unique(nodes.begin(), nodes.end(),
                            [](const numa_node& a, const numa_node& b) { return a.os_index == b.os_index; }),
                nodes.end());
    const auto check = [&](std::optional<unsigned>& node) {
      if (node && find_node(parts_, *node) == nullptr) node.reset();
    };
    for (vtier::drive& item : parts_.drives) check(item.node);
    for (vtier::gpu& item : parts_.gpus) {
      check(item.node);
      if (!item.node && parts_.numa_known && !nearest_memory(parts_, std::nullopt)) {
        say("GPU " + item.address.to_string() +
            ": the system does not say which NUMA node it is on; host memory for it stays unbound");
      }
    }
  }

  /// Finds out about the machine at hand; include <vtier/topology/discover.hpp> for it.
  ///
  /// Errors  none for odd machines: what cannot be found out is unknown, and a note says so
  /// Threads any
  /// Cost    reads a few hundred small files; milliseconds
  [[nodiscard]] static inline machine discover();

  /// The NUMA nodes, in rising order of their numbers; never empty after discover().
  [[nodiscard]] const std::vector<numa_node>& nodes() const noexcept { return parts_.nodes; }
  /// The GPUs on the PCI bus, whether or not a driver runs them.
  [[nodiscard]] const std::vector<gpu>& gpus() const noexcept { return parts_.gpus; }
  /// The drives.
  [[nodiscard]] const std::vector<drive>& drives() const noexcept { return parts_.drives; }
  /// What could not be found out, each a sentence.
  [[nodiscard]] const std::vector<std::string>& notes() const noexcept { return parts_.notes; }
  /// The CPUs that this process may run on, in rising order.
  [[nodiscard]] const std::vector<unsigned>& allowed_cpus() const noexcept { return parts_.allowed_cpus; }
  /// The memory that this process may use where a container or a service allows it less than there is.
  ///
  /// Gives   the smallest limit of its control group and those above, and the file that it stands in
  [[nodiscard]] const std::optional<vtier::memory_limit>& memory_limit() const noexcept { return parts_.memory_limit; }
  /// Everything as plain values, for the functions of affinity.hpp.
  [[nodiscard]] const machine_parts& parts() const noexcept { return parts_; }

  /// The node with this system number; null where there is none.
  [[nodiscard]] const numa_node* node(unsigned os_index) const& noexcept { return find_node(parts_, os_index); }

  /// The distance between two nodes; empty where the system does not say.
  ///
  /// Units   relative: 10 is a node's distance to itself
  [[nodiscard]] std::optional<unsigned> distance(unsigned from, unsigned to) const noexcept {
    return node_distance_between(parts_, from, to);
  }

  /// The node whose memory is closest to a device: where pinned memory for it belongs.
  ///
  /// Needs   bus_id() gives the PCI address as text, empty for a host device
  /// Gives   a node with CPUs and memory, for a host device the first such; empty where the device's place is unknown
  ///         and there are several, or where the system says nothing about nodes: leave memory unbound then
  template <class Device>
  requires requires(const Device& device) {
    { device.bus_id() } -> std::convertible_to<std::string>;
  }
  [[nodiscard]] std::optional<unsigned> nearest_node(const Device& device) const {
    const std::string text = device.bus_id();
    if (text.empty()) return default_node(parts_);
    const auto address = pci_address::parse(text);
    return address ? nearest_node(*address) : nearest_memory(parts_, std::nullopt);
  }

  /// The node whose memory is closest to the GPU at this address; empty as above.
  [[nodiscard]] std::optional<unsigned> nearest_node(const pci_address& address) const {
    for (const vtier::gpu& item : parts_.gpus) {
      if (item.address == address) return nearest_memory(parts_, item.node);
    }
    for (const vtier::drive& item : parts_.drives) {
      if (item.address == address) return nearest_memory(parts_, item.node);
    }
    return nearest_memory(parts_, std::nullopt);
  }

  /// The node whose memory is closest to a drive; empty as above.
  [[nodiscard]] std::optional<unsigned> nearest_node(const vtier::drive& item) const {
    return nearest_memory(parts_, item.node);
  }

  /// The CPUs for threads that work on a node's memory, or next to a device whose nearest node this is.
  ///
  /// Gives   only CPUs that this process may use, so it can be empty: leave the thread unbound then
  [[nodiscard]] std::vector<unsigned> cpus_for(unsigned os_index) const { return cpus_for_node(parts_, os_index); }

 private:
  void say(std::string sentence) {
    if (std::find(parts_.notes.begin(), parts_.notes.end(), sentence) == parts_.notes.end()) {
      parts_.notes.push_back(std::move(sentence));
    }
  }

  machine_parts parts_;
};

}  // namespace vtier
