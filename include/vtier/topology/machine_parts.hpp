// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a machine is made of, as plain values that anybody can write down: nodes, GPUs, drives, distances.
//
// A file of its own so that `affinity` can answer questions about such values, `machine` can ask them, and the ways of
// discovery (sysfs, hwloc) can fill them in, without one including the other. A test writes down the machine that
// nobody here owns.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/topology/pci_address.hpp>

namespace vtier {

/// What the memory of a NUMA node is.
///
/// dram: ordinary memory of CPUs (its size may be zero). memory_only: memory without CPUs of its own, such as CXL or
/// HBM. gpu_memory: a GPU's memory that the system shows as a node.
enum class node_kind { dram, memory_only, gpu_memory };

/// One NUMA node.
///
/// Units   bytes; os_index is the system's number, not a position: numbers start anywhere and have gaps
struct numa_node {
  unsigned os_index = 0;
  std::size_t memory_bytes = 0;
  std::vector<unsigned> cpus;  // system numbers of the CPUs of this node that this process may use
  node_kind kind = node_kind::dram;
};

/// One GPU on the PCI bus.
///
/// Units   bytes per second, one direction, of the link at its full rate
struct gpu {
  pci_address address;
  std::string name;
  std::optional<unsigned> node;  // os_index of the NUMA node that it hangs on; empty where the system does not say
  std::optional<double> link_bytes_per_second;
};

/// One drive.
struct drive {
  std::string name;                    // as the kernel calls it: "nvme0n1"
  std::optional<pci_address> address;  // of its controller
  std::optional<unsigned> node;        // os_index of the NUMA node that it hangs on, as for a gpu
};

/// How far one node's memory is from another node's CPUs.
///
/// Units   relative: 10 is a node's distance to itself
struct node_distance {
  unsigned from = 0;
  unsigned to = 0;
  unsigned value = 0;
};

/// A limit on the memory of a group of processes, and where it stands.
///
/// Units   bytes
struct memory_limit {
  std::size_t size_bytes = 0;
  std::size_t used_bytes = 0;  // of it, by memory that is no copy of a file; 0 where the kernel does not say
  std::string file;

  [[nodiscard]] std::size_t free_bytes() const noexcept {
    return size_bytes > used_bytes ? size_bytes - used_bytes : 0;
  }
};

/// All of a machine.
///
/// Needs   node numbers in gpus, drives and distances are os_index values; those that no node has are taken as unknown
struct machine_parts {
  std::vector<numa_node> nodes;
  std::vector<gpu> gpus;
  std::vector<drive> drives;
  std::vector<node_distance> distances;
  std::vector<unsigned> allowed_cpus;               // what this process may run on
  std::optional<vtier::memory_limit> memory_limit;  // of this process's control groups, the smallest
  std::vector<std::string> notes;                   // what could not be found out, in sentences
  bool numa_known = true;  // false: the one node stands for "the system does not say"; never bind to it
};

}  // namespace vtier
