// SPDX-License-Identifier: Apache-2.0
#pragma once

// The machine as hwloc sees it: live, from an XML file of a machine somewhere else, or made up.
//
// The only header that knows hwloc. It asks for no more than vtier uses (nodes, CPUs, PCI, drives), live without the
// CPU's own tables and without packages, cores and caches: these are what hwloc's long warnings about contradictory
// firmware come from, and its only switch against them is an environment variable, which belongs to the user. It does
// not ask hwloc's GPU plugins either, because they start the GPU's runtime, nor its PCI plugin, which leaks: hwloc then
// reads PCI from /sys.

#include <hwloc.h>

#if HWLOC_API_VERSION < 0x00020000
#error "vtier needs hwloc 2 or newer: install it, or build without VTIER_HAS_HWLOC"
#endif

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/topology/affinity.hpp>
#include <vtier/topology/machine.hpp>
#include <vtier/topology/machine_parts.hpp>
#include <vtier/topology/pci_address.hpp>

namespace vtier {

namespace detail {

/// Refuses a library of another major version than the header that vtier was built with.
///
/// Errors  usage_error
inline void check_hwloc_version(unsigned built, unsigned running) {
  if (built >> 16U == running >> 16U) return;
  throw usage_error("built with hwloc " + std::to_string(built >> 16U) + " but running with hwloc " +
                    std::to_string(running >> 16U) + ": they do not fit together, rebuild or fix the library path");
}

struct hwloc_topology_closer {
  void operator()(::hwloc_topology* topology) const noexcept { ::hwloc_topology_destroy(topology); }
};
using hwloc_topology_owner = std::unique_ptr<::hwloc_topology, hwloc_topology_closer>;

[[nodiscard]] inline hwloc_topology_owner make_hwloc_topology() {
  check_hwloc_version(HWLOC_API_VERSION, ::hwloc_get_api_version());
  ::hwloc_topology_t raw = nullptr;
  if (::hwloc_topology_init(&raw) != 0) throw usage_error("hwloc could not make a topology: is there memory left?");
  hwloc_topology_owner topology{raw};
  ::hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
  return topology;
}

[[nodiscard]] inline std::vector<unsigned> hwloc_numbers(::hwloc_const_bitmap_t set) {
  std::vector<unsigned> numbers;
  if (set == nullptr || ::hwloc_bitmap_weight(set) < 0) return numbers;  // negative: infinite
  for (int i = ::hwloc_bitmap_first(set); i >= 0; i = ::hwloc_bitmap_next(set, i)) {
    numbers.push_back(static_cast<unsigned>(i));
  }
  return numbers;
}

inline void read_hwloc_nodes(machine_parts& parts, ::hwloc_topology_t topology) {
  parts.allowed_cpus = common_cpus(hwloc_numbers(::hwloc_topology_get_topology_cpuset(topology)),
                                   hwloc_numbers(::hwloc_topology_get_allowed_cpuset(topology)));
  const auto allowed_nodes = hwloc_numbers(::hwloc_topology_get_allowed_nodeset(topology));
  std::vector<::hwloc_obj_t> objects;
  for (::hwloc_obj_t object = nullptr;
       (object = ::hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, object)) != nullptr;) {
    if (std::find(allowed_nodes.begin(), allowed_nodes.end(), object->os_index) != allowed_nodes.end()) {
      objects.push_back(object);
    } else {
      parts.notes.push_back("NUMA node " + std::to_string(object->os_index) +
                            " is not used: this process may not (cpuset)");
    }
  }
  // hwloc lends a node without CPUs those of its neighbours. Real nodes share none, so each CPU belongs to the first
  // that has it: ordinary memory before special, one socket's before the whole machine's, low numbers before high.
  const auto text = [](const char* value) { return value == nullptr ? std::string_view{} : std::string_view{value}; };
  const auto special = [&](::hwloc_obj_t object) {
    const std::string_view subtype = text(object->subtype);
    const std::string_view tier = text(::hwloc_obj_get_info_by_name(object, "MemoryTier"));
    return (!subtype.empty() && subtype != "DRAM") || (!tier.empty() && tier != "DRAM") ||
           ::hwloc_obj_get_info_by_name(object, "DAXDevice") != nullptr;
  };
  const auto rank = [&](::hwloc_obj_t object) {
    return std::tuple{special(object), ::hwloc_bitmap_weight(object->complete_cpuset), object->os_index};
  };
  std::sort(objects.begin(), objects.end(), [&](auto* a, auto* b) { return rank(a) < rank(b); });
  std::vector<unsigned> taken;
  for (::hwloc_obj_t object : objects) {
    numa_node node;
    node.os_index = object->os_index;
    node.memory_bytes = object->attr->numanode.local_memory;
    const auto cpus = hwloc_numbers(object->complete_cpuset);  // also those that this process may not use
    if (text(object->subtype) == "GPUMemory" ||
        text(::hwloc_obj_get_info_by_name(object, "MemoryTier")) == "GPUMemory") {
      node.kind = node_kind::gpu_memory;
    } else if (cpus.empty() || !common_cpus(cpus, taken).empty()) {
      node.kind = node_kind::memory_only;
    } else {
      node.kind = node_kind::dram;
      node.cpus = common_cpus(hwloc_numbers(object->cpuset), parts.allowed_cpus);
      taken.insert(taken.end(), cpus.begin(), cpus.end());
    }
    parts.nodes.push_back(std::move(node));
  }
  std::sort(parts.nodes.begin(), parts.nodes.end(),
            [](const numa_node& a, const numa_node& b) { return a.os_index < b.os_index; });
}

inline void read_hwloc_distances(machine_parts& parts, ::hwloc_topology_t topology) {
  ::hwloc_distances_s* matrix = nullptr;
  unsigned count = 1;
  if (::hwloc_distances_get_by_type(topology, HWLOC_OBJ_NUMANODE, &count, &matrix, HWLOC_DISTANCES_KIND_MEANS_LATENCY,
                                    0) != 0 ||
      count == 0 || matrix == nullptr) {
    return;
  }
  for (unsigned i = 0; i < matrix->nbobjs; ++i) {
    for (unsigned j = 0; j < matrix->nbobjs; ++j) {
      if (matrix->objs[i] == nullptr || matrix->objs[j] == nullptr) continue;
      const std::uint64_t value = matrix->values[static_cast<std::size_t>(i) * matrix->nbobjs + j];
      if (value > UINT_MAX) continue;
      parts.distances.push_back({matrix->objs[i]->os_index, matrix->objs[j]->os_index, static_cast<unsigned>(value)});
    }
  }
  ::hwloc_distances_release(topology, matrix);
}

/// The node that an I/O object hangs on: the first with memory of those below its parent.
[[nodiscard]] inline std::optional<unsigned> hwloc_node_of(const machine_parts& parts, ::hwloc_topology_t topology,
                                                           ::hwloc_obj_t object) {
  const ::hwloc_obj_t place = ::hwloc_get_non_io_ancestor_obj(topology, object);
  if (place == nullptr) return std::nullopt;
  std::vector<unsigned> found;
  for (const unsigned number : hwloc_numbers(place->nodeset)) {
    const numa_node* const node = find_node(parts, number);
    if (node != nullptr && is_default_memory(*node)) found.push_back(number);
  }
  // Hanging on the whole machine means that nobody knows.
  if (found.empty() || (place->parent == nullptr && found.size() > 1)) return std::nullopt;
  return found.front();
}

[[nodiscard]] inline pci_address hwloc_address(::hwloc_obj_t object) {
  const auto& pci = object->attr->pcidev;
  return {pci.domain, pci.bus, pci.dev, pci.func};
}

inline void read_hwloc_devices(machine_parts& parts, ::hwloc_topology_t topology) {
  for (::hwloc_obj_t object = nullptr; (object = ::hwloc_get_next_pcidev(topology, object)) != nullptr;) {
    const auto& pci = object->attr->pcidev;
    const unsigned base_class = static_cast<unsigned>(pci.class_id) >> 8U;
    const bool nvidia = pci.vendor_id == 0x10de && base_class == 0x03;
    const bool amd = pci.vendor_id == 0x1002 && (base_class == 0x03 || base_class == 0x12);
    if (!nvidia && !amd) continue;
    gpu item;
    item.address = hwloc_address(object);
    item.node = hwloc_node_of(parts, topology, object);
    item.name = object->name != nullptr ? object->name : (nvidia ? "NVIDIA GPU" : "AMD GPU");
    if (pci.linkspeed > 0.0F) item.link_bytes_per_second = static_cast<double>(pci.linkspeed) * 1e9;
    parts.gpus.push_back(std::move(item));
  }
  for (::hwloc_obj_t object = nullptr; (object = ::hwloc_get_next_osdev(topology, object)) != nullptr;) {
#if HWLOC_API_VERSION >= 0x00030000
    const bool block = (object->attr->osdev.types & HWLOC_OBJ_OSDEV_STORAGE) != 0;
#else
    const bool block = object->attr->osdev.type == HWLOC_OBJ_OSDEV_BLOCK;
#endif
    const std::string_view subtype = object->subtype == nullptr ? std::string_view{} : object->subtype;
    const bool disk = subtype.empty() || subtype == "Disk" || subtype == "Other";  // no tapes, trays or memory modules
    if (!block || !disk || object->name == nullptr) continue;
    drive item;
    item.name = object->name;
    item.node = hwloc_node_of(parts, topology, object);
    for (::hwloc_obj_t above = object->parent; above != nullptr; above = above->parent) {
      if (above->type != HWLOC_OBJ_PCI_DEVICE) continue;
      item.address = hwloc_address(above);
      break;
    }
    parts.drives.push_back(std::move(item));
  }
}

[[nodiscard]] inline machine_parts hwloc_parts(::hwloc_topology_t topology) {
  machine_parts parts;
  read_hwloc_nodes(parts, topology);
  read_hwloc_distances(parts, topology);
  read_hwloc_devices(parts, topology);
  return parts;
}

/// What hwloc finds on the system at hand, and whether that is this system: its own environment variables can name a
/// file instead.
struct hwloc_finding {
  machine_parts parts;
  bool this_system = true;
};

[[nodiscard]] inline hwloc_finding read_hwloc_system() {
  for (const bool bare : {true, false}) {
    const hwloc_topology_owner topology = make_hwloc_topology();
    ::hwloc_topology_t const raw = topology.get();
    if (bare) {
      ::hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
      ::hwloc_topology_set_type_filter(raw, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE);
      ::hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_ALL);
    }
#if HWLOC_API_VERSION >= 0x00020100
    for (const char* name : {"x86", "pci", "cuda", "nvml", "rsmi", "levelzero", "opencl", "gl"}) {
      // One that this hwloc does not have is an error without consequence.
      static_cast<void>(::hwloc_topology_set_components(raw, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, name));
    }
#endif
    if (::hwloc_topology_load(raw) != 0) {
      throw usage_error("hwloc could not read this system: see what its tool lstopo says");
    }
    // From a file, the bare filters would cut devices loose from their packages: once more without them.
    const bool this_system = ::hwloc_topology_is_thissystem(raw) != 0;
    if (bare && !this_system && std::getenv("HWLOC_XMLFILE") != nullptr) continue;
    return {hwloc_parts(raw), this_system};
  }
  return {};
}

[[nodiscard]] inline machine load_hwloc(hwloc_topology_owner topology, int set, const std::string& what) {
  if (set != 0 || ::hwloc_topology_load(topology.get()) != 0) {
    throw usage_error(what + " cannot be read by hwloc (API " + std::to_string(HWLOC_API_VERSION >> 16U) + "." +
                      std::to_string(HWLOC_API_VERSION >> 8U & 0xffU) +
                      "): is it there, whole, and of a format version that this hwloc knows?");
  }
  return machine{hwloc_parts(topology.get())};
}

}  // namespace detail

/// Asks hwloc about the machine at hand.
///
/// Errors  usage_error where the library has another major version than its header, or cannot read the system
/// Threads any; binds nothing, also not for a moment
/// Cost    tens of milliseconds
[[nodiscard]] inline machine machine_from_hwloc() { return machine{detail::read_hwloc_system().parts}; }

/// Reads a machine from an XML file, as lstopo writes them.
///
/// Errors  usage_error where the file is not there, is broken, or has a format version that the library does not know
/// Threads any
[[nodiscard]] inline machine machine_from_hwloc_xml(const std::string& path) {
  auto topology = detail::make_hwloc_topology();
  const int set = ::hwloc_topology_set_xml(topology.get(), path.c_str());
  return detail::load_hwloc(std::move(topology), set, "the topology file " + path);
}

/// Reads a machine from XML text.
///
/// Errors  usage_error as for a file
/// Threads any
[[nodiscard]] inline machine machine_from_hwloc_xml_text(const std::string& text) {
  if (text.size() >= INT_MAX) throw usage_error("a topology of 2 GiB is more than hwloc takes");
  auto topology = detail::make_hwloc_topology();
  const int set =
      ::hwloc_topology_set_xmlbuffer(topology.get(), text.c_str(), static_cast<int>(text.size()) + 1);  // with its zero
  return detail::load_hwloc(std::move(topology), set, "the topology text");
}

/// Makes a machine up from hwloc's short form, such as "package:2 [numa(memory=64GB)] core:8 pu:2".
///
/// Errors  usage_error where hwloc does not understand it
/// Threads any
[[nodiscard]] inline machine machine_from_hwloc_synthetic(const std::string& text) {
  auto topology = detail::make_hwloc_topology();
  const int set = ::hwloc_topology_set_synthetic(topology.get(), text.c_str());
  return detail::load_hwloc(std::move(topology), set, "the synthetic topology \"" + text + "\"");
}

}  // namespace vtier
