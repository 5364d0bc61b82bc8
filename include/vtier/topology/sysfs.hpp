// SPDX-License-Identifier: Apache-2.0
#pragma once

// The machine as the kernel shows it in /sys and /proc, with no outside library; and the drive behind a directory.
//
// The roots are parameters, so that a test can build the tree of a machine that nobody here owns. Nothing in the tree
// is required: what is not there is unknown, and a note says so.

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/topology/affinity.hpp>
#include <vtier/topology/detail/text_files.hpp>
#include <vtier/topology/machine_parts.hpp>
#include <vtier/topology/memory_limit.hpp>
#include <vtier/topology/pci_address.hpp>

namespace vtier {

namespace detail {

/// The NUMA node that a device hangs on, from its own directory or one above it; empty for -1 and anything else that is
/// not a node's number.
[[nodiscard]] inline std::optional<unsigned> device_node(const machine_parts& parts, std::string path,
                                                         const std::string& root) {
  // A drive behind a volume-management device says nothing itself, but a bridge above it does.
  for (; path.size() > root.size(); path = parent_path(path)) {
    const auto node = read_number<unsigned>(path + "/numa_node");
    if (node && find_node(parts, *node) != nullptr) return node;
  }
  return std::nullopt;
}

/// The part of a device's path that ends at its PCI function; empty where there is none.
[[nodiscard]] inline std::optional<std::string> pci_directory(std::string path, const std::string& root) {
  for (; path.size() > root.size(); path = parent_path(path)) {
    if (pci_address::parse(last_name(path))) return path;
  }
  return std::nullopt;
}

/// Full rate of a device's link: its own and its upstream port's limits, whichever is less.
[[nodiscard]] inline std::optional<double> link_rate(const std::string& directory) {
  // The current rate would be wrong: an idle GPU lowers it to save power.
  const auto rate = [](const std::string& path) -> std::optional<double> {
    const auto speed = read_text(path + "/max_link_speed");  // "32.0 GT/s PCIe"
    const auto width = read_number<unsigned>(path + "/max_link_width");
    if (!speed || !width || *width == 0 || *width > 32) return std::nullopt;
    double transfers = 0.0;
    const auto [end, error] = std::from_chars(speed->data(), speed->data() + speed->size(), transfers);
    if (error != std::errc{} || !(transfers > 0.0 && transfers < 1024.0)) return std::nullopt;
    const double coding = transfers < 8.0 ? 0.8 : (transfers < 64.0 ? 128.0 / 130.0 : 242.0 / 256.0);
    return transfers * 1e9 * coding / 8.0 * static_cast<double>(*width);
  };
  const auto own = rate(directory);
  const auto upstream = rate(parent_path(directory));
  if (own && upstream) return (std::min)(*own, *upstream);
  return own;
}

/// Fills in a drive from its directory below a block device tree.
[[nodiscard]] inline drive read_drive(const machine_parts& parts, const std::string& directory,
                                      const std::string& root) {
  drive result;
  result.name = last_name(directory);
  std::string path = directory;
  const std::string above = parent_path(directory);
  if (last_name(parent_path(above)) == "nvme-subsystem") {  // several paths to one drive: the first stands for all
    for (const std::string& name : list_names(above)) {
      const auto controller = name.rfind("nvme", 0) == 0 ? real_path(above + '/' + name) : std::nullopt;
      if (controller && pci_directory(*controller, root)) {
        path = *controller;
        break;
      }
    }
  }
  result.node = device_node(parts, path, root);
  if (const auto function = pci_directory(path, root)) result.address = pci_address::parse(last_name(*function));
  return result;
}

inline void read_nodes(machine_parts& parts, const system_roots& roots) {
  const std::string base = roots.sys + "/devices/system/node";
  const auto status = read_text(roots.proc + "/self/status");
  const auto allowed_list = [&](std::string_view key) -> std::optional<std::vector<unsigned>> {
    const auto value = status ? line_value(*status, key) : std::nullopt;
    return value ? parse_list(*value) : std::nullopt;
  };
  const auto online = read_list(roots.sys + "/devices/system/cpu/online");
  const auto allowed = allowed_list("Cpus_allowed_list:");
  if (online && allowed) {
    parts.allowed_cpus = common_cpus(*online, *allowed);
  } else {
    parts.allowed_cpus = allowed ? *allowed : (online ? *online : bound_cpus());
  }
  const auto allowed_nodes = allowed_list("Mems_allowed_list:");
  for (const std::string& name : list_names(base)) {
    const auto number = name.rfind("node", 0) == 0 ? parse_number<unsigned>(name.substr(4)) : std::nullopt;
    if (!number) continue;
    if (allowed_nodes && !std::binary_search(allowed_nodes->begin(), allowed_nodes->end(), *number)) {
      parts.notes.push_back("NUMA node " + std::to_string(*number) + " is not used: this process may not (cpuset)");
      continue;
    }
    const std::string directory = base + '/' + name;
    const auto cpus = read_list(directory + "/cpulist").value_or(std::vector<unsigned>{});
    const auto meminfo = read_text(directory + "/meminfo");
    const auto total = meminfo ? line_value(*meminfo, "MemTotal:") : std::nullopt;
    numa_node node;
    node.os_index = *number;
    node.kind = cpus.empty() ? node_kind::memory_only : node_kind::dram;  // all CPUs, also those we may not use
    node.cpus = common_cpus(cpus, parts.allowed_cpus);
    node.memory_bytes = total ? parse_bytes(*total).value_or(0) / 1000 * 1024 : 0;  // its "kB" are KiB
    parts.nodes.push_back(std::move(node));
    const auto row = read_text(directory + "/distance");
    if (!row) continue;
    // One column for each online node, in order of their numbers: matched with numbers once all are known.
    std::string_view rest = *row;
    for (unsigned column = 0; !rest.empty(); ++column) {
      const std::size_t end = (std::min)(rest.find(' '), rest.size());
      const auto value = parse_number<unsigned>(rest.substr(0, end));
      if (value) parts.distances.push_back({*number, column, *value});
      rest.remove_prefix((std::min)(end + 1, rest.size()));
    }
  }
  // The columns count the online nodes, whether this process may use them or not.
  std::vector<unsigned> columns = read_list(base + "/online").value_or(std::vector<unsigned>{});
  if (columns.empty()) {
    for (const std::string& name : list_names(base)) {
      const auto number = name.rfind("node", 0) == 0 ? parse_number<unsigned>(name.substr(4)) : std::nullopt;
      if (number) columns.push_back(*number);
    }
    std::sort(columns.begin(), columns.end());
  }
  std::erase_if(parts.distances, [&](node_distance& entry) {
    if (entry.to >= columns.size()) return true;
    entry.to = columns[entry.to];
    return find_node(parts, entry.to) == nullptr;
  });
  if (!parts.nodes.empty()) return;
  parts.numa_known = false;
  parts.notes.emplace_back("no NUMA information: all memory and CPUs count as one node, and nothing is bound");
  const auto meminfo = read_text(roots.proc + "/meminfo");
  const auto total = meminfo ? line_value(*meminfo, "MemTotal:") : std::nullopt;
  numa_node node;
  node.cpus = parts.allowed_cpus;
  node.memory_bytes = total ? parse_bytes(*total).value_or(0) / 1000 * 1024 : 0;
  parts.nodes.push_back(std::move(node));
}

inline void read_gpus(machine_parts& parts, const system_roots& roots, const std::string& root) {
  const std::string base = roots.sys + "/bus/pci/devices";
  for (const std::string& name : list_names(base)) {
    const auto address = pci_address::parse(name);
    const auto directory = address ? real_path(base + '/' + name) : std::nullopt;
    if (!directory) continue;
    const auto hex = [&](const char* file) -> unsigned {
      const auto text = read_text(*directory + '/' + file);
      if (!text || text->rfind("0x", 0) != 0) return 0;
      return parse_number<unsigned>(std::string_view{*text}.substr(2), 16).value_or(0);
    };
    const unsigned vendor = hex("vendor");
    const unsigned base_class = hex("class") >> 16U;
    const bool nvidia = vendor == 0x10de && base_class == 0x03;
    const bool amd = vendor == 0x1002 && (base_class == 0x03 || base_class == 0x12);  // display, or accelerator
    if (!nvidia && !amd) continue;
    gpu result;
    result.address = *address;
    result.node = device_node(parts, *directory, root);
    result.link_bytes_per_second = link_rate(*directory);
    const std::string driver = roots.proc + "/driver/nvidia/gpus/" + address->to_string();
    const auto information = read_text(driver + "/information");
    const auto model = information ? line_value(*information, "Model:") : std::nullopt;
    result.name = model ? std::string{*model} : std::string{nvidia ? "NVIDIA GPU" : "AMD GPU"};
    parts.gpus.push_back(std::move(result));
    // Coherent boards show GPU memory as nodes; the driver says which.
    const auto own = read_text(driver + "/numa_status");
    const auto value = own ? line_value(*own, "Node:") : std::nullopt;
    const auto number = value ? parse_number<unsigned>(*value) : std::nullopt;
    for (numa_node& node : parts.nodes) {
      if (number == node.os_index && node.kind == node_kind::memory_only) node.kind = node_kind::gpu_memory;
    }
  }
}

inline void read_drives(machine_parts& parts, const system_roots& roots, const std::string& root) {
  const std::string base = roots.sys + "/block";
  for (const std::string& name : list_names(base)) {
    const auto directory = real_path(base + '/' + name);
    if (!directory) continue;
    const bool made_up = directory->find("/devices/virtual/") != std::string::npos &&
                         directory->find("/nvme-subsystem/") == std::string::npos;
    const bool tray = name.rfind("sr", 0) == 0 || name.rfind("fd", 0) == 0;
    if (made_up || tray || read_text(*directory + "/hidden") == "1") continue;
    parts.drives.push_back(read_drive(parts, *directory, root));
  }
}

inline void collect_drives(std::vector<drive>& result, const machine_parts& parts, const std::string& directory,
                           const std::string& root, unsigned depth) {
  if (depth == 0 || result.size() >= 256) return;
  const auto found = real_path(directory);
  if (!found) return;
  const std::string whole = read_text(*found + "/partition") ? parent_path(*found) : *found;
  const auto slaves = list_names(whole + "/slaves");
  for (const std::string& name : slaves) collect_drives(result, parts, whole + "/slaves/" + name, root, depth - 1);
  if (!slaves.empty()) return;
  drive item = read_drive(parts, whole, root);
  const bool known =
      std::any_of(result.begin(), result.end(), [&](const drive& other) { return other.name == item.name; });
  if (!known) result.push_back(std::move(item));
}

}  // namespace detail

/// Reads the machine from the kernel's trees.
///
/// Gives   nodes that this process may use, GPUs, drives, the memory limit of its control group; one node of unknown
///         place where the tree has none
/// Errors  none: what cannot be read is unknown
/// Threads any
[[nodiscard]] inline machine_parts read_sysfs(const system_roots& roots = {}) {
  machine_parts parts;
  detail::read_nodes(parts, roots);
  const std::string root = detail::real_path(roots.sys).value_or(roots.sys);
  detail::read_gpus(parts, roots, root);
  detail::read_drives(parts, roots, root);
  parts.memory_limit = group_memory_limit(roots);
  return parts;
}

/// The CPUs that threads working on a node's memory run on: its own, or the nearest ones where it has none.
///
/// Gives   empty where the kernel shows no such node
/// Threads any
[[nodiscard]] inline std::vector<unsigned> cpus_of_memory(unsigned os_index, const system_roots& roots = {}) {
  machine_parts parts;
  detail::read_nodes(parts, roots);
  return cpus_for_node(parts, os_index);
}

/// The drives behind a block device: itself, the drive of a partition, all drives below a volume or an array.
///
/// Gives   none where the kernel does not know the device
/// Threads any
[[nodiscard]] inline std::vector<drive> drives_of_device(unsigned major_number, unsigned minor_number,
                                                         const system_roots& roots = {}) {
  constexpr unsigned depth_max = 8;  // encryption over a volume over an array over a partition is four
  machine_parts parts;
  detail::read_nodes(parts, roots);
  const std::string root = detail::real_path(roots.sys).value_or(roots.sys);
  std::vector<drive> result;
  detail::collect_drives(result, parts,
                         roots.sys + "/dev/block/" + std::to_string(major_number) + ':' + std::to_string(minor_number),
                         root, depth_max);
  return result;
}

/// The drives that a file or directory is on.
///
/// Gives   none where it does not exist or has no block device: network file systems, tmpfs, overlays
/// Threads any
[[nodiscard]] inline std::vector<drive> drives_of(const std::string& path, const system_roots& roots = {}) {
  struct ::statx status {};
  if (::statx(AT_FDCWD, path.c_str(), AT_NO_AUTOMOUNT, STATX_TYPE, &status) != 0) return {};
  if (status.stx_dev_major == 0) return {};
  return drives_of_device(status.stx_dev_major, status.stx_dev_minor, roots);
}

/// The drive that a file or directory is on; of several the first.
///
/// Gives   empty where drives_of() finds none
/// Threads any
[[nodiscard]] inline std::optional<drive> drive_of(const std::string& path, const system_roots& roots = {}) {
  auto found = drives_of(path, roots);
  if (found.empty()) return std::nullopt;
  return std::move(found.front());
}

}  // namespace vtier
