// SPDX-License-Identifier: Apache-2.0
// Prints the machine: its NUMA nodes, GPUs and drives, what is close to what, and what could not be found out.
//
//   topology [directory]          also says which drive the directory is on, and whose memory is closest to it
//   topology --xml machine.xml    another machine, from a file that lstopo wrote (needs hwloc)

#include <exception>
#include <iostream>
#include <string>

#include <vtier/core/bytes.hpp>
#include <vtier/topology/discover.hpp>
#include <vtier/topology/memory_limit.hpp>
#include <vtier/topology/sysfs.hpp>
#include <vtier/topology/thread_count.hpp>

namespace {

std::string node_text(std::optional<unsigned> node) { return node ? "node " + std::to_string(*node) : "no known node"; }

void print(const vtier::machine& machine) {
  for (const auto& node : machine.nodes()) {
    const bool own_cpus = node.kind == vtier::node_kind::dram;
    const bool of_gpu = node.kind == vtier::node_kind::gpu_memory;
    const char* const kind = own_cpus ? "CPUs and memory" : (of_gpu ? "memory of a GPU" : "memory without CPUs");
    std::cout << "node " << node.os_index << "  " << kind << ", " << vtier::format_bytes(node.memory_bytes) << ", "
              << node.cpus.size() << " CPUs for this process; distances";
    for (const auto& other : machine.nodes()) {
      const auto distance = machine.distance(node.os_index, other.os_index);
      std::cout << ' ' << (distance ? std::to_string(*distance) : "?");
    }
    std::cout << '\n';
  }
  for (const auto& gpu : machine.gpus()) {
    std::cout << "GPU " << gpu.address.to_string() << "  " << gpu.name
              << ", pinned memory for it: " << node_text(machine.nearest_node(gpu.address));
    if (gpu.link_bytes_per_second) std::cout << ", link " << *gpu.link_bytes_per_second / 1e9 << " GB/s";
    std::cout << '\n';
  }
  for (const auto& drive : machine.drives()) {
    std::cout << "drive " << drive.name << "  " << (drive.address ? drive.address->to_string() : "not on PCI")
              << ", closest memory: " << node_text(machine.nearest_node(drive)) << '\n';
  }
  for (const auto& note : machine.notes()) std::cout << "note  " << note << '\n';
}

}  // namespace

int main(int argc, char* argv[]) try {
  const std::string first = argc > 1 ? argv[1] : "";
  if (first == "--xml") {
#if VTIER_HAS_HWLOC
    if (argc == 3) return print(vtier::machine_from_hwloc_xml(argv[2])), 0;
#endif
    std::cerr << "--xml takes a file, and needs a build with hwloc\n";
    return 2;
  }
  const auto machine = vtier::machine::discover();
  print(machine);
  std::cout << "threads by default: " << vtier::default_thread_count() << '\n';
  if (const auto limit = vtier::group_memory_limit()) {
    std::cout << "memory limit: " << vtier::format_bytes(limit->size_bytes) << " (" << limit->file << ")\n";
  }
  if (first.empty()) return 0;
  const auto drives = vtier::drives_of(first);
  if (drives.empty()) std::cout << first << " is on no drive that the system knows\n";
  for (const auto& drive : drives) {
    std::cout << first << " is on " << drive.name << ", closest: " << node_text(machine.nearest_node(drive)) << '\n';
  }
} catch (const std::exception& problem) {
  std::cerr << problem.what() << '\n';
  return 1;
}
