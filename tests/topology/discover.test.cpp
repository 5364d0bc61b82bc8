// SPDX-License-Identifier: Apache-2.0
#include <vtier/topology/discover.hpp>

#include <sched.h>

#include <string>
#include <thread>
#include <vector>

#include <vtier/core/bytes.hpp>

#include "support/catch.hpp"

using namespace vtier::literals;
using vtier::machine;
using vtier::machine_parts;
using vtier::node_kind;
using numbers = std::vector<unsigned>;

TEST_CASE("discover: this machine has nodes and CPUs, whatever it is") {
  const machine m = machine::discover();
  REQUIRE(!m.nodes().empty());
  CHECK(!m.allowed_cpus().empty());
  numbers on_nodes;
  for (const auto& node : m.nodes()) on_nodes.insert(on_nodes.end(), node.cpus.begin(), node.cpus.end());
  CHECK(vtier::common_cpus(on_nodes, on_nodes) == m.allowed_cpus());  // every CPU on one node
  CHECK(on_nodes.size() == m.allowed_cpus().size());
  if (const auto node = vtier::default_node(m.parts())) {
    CHECK(m.node(*node) != nullptr);
    CHECK(m.node(*node)->memory_bytes > 0);
  }
  for (const auto& drive : m.drives()) CHECK(!drive.name.empty());
  CHECK(m.memory_limit().has_value() == vtier::group_memory_limit().has_value());
}

TEST_CASE("discover: a thread binds to the CPUs of its node") {
  const machine m = machine::discover();
  const auto node = vtier::default_node(m.parts());
  if (!node || m.cpus_for(*node).empty()) {
    WARN("skipped: this process has no CPU on a known node");
    return;
  }
  const numbers wanted = m.cpus_for(*node);
  bool bound = false;
  numbers got;
  std::thread([&] {
    bound = vtier::bind_this_thread(wanted);
    got = vtier::bound_cpus();
  }).join();
  CHECK(bound);
  CHECK(got == vtier::common_cpus(wanted, vtier::bound_cpus()));
}

TEST_CASE("discover: the second view adds what the first leaves out (VO-E01, VO-E02)") {
  machine_parts first;
  first.nodes = {{0, 64_GiB, {0, 1}, node_kind::dram}, {1, 64_GiB, {2, 3}, node_kind::dram}};
  first.allowed_cpus = {0, 1, 2, 3};
  first.gpus = {{{0, 0x3b, 0, 0}, "hwloc's name", {}, 4e9}};
  first.drives = {{"nvme0n1", {}, 0U}};
  machine_parts second;
  second.nodes = {{0, 64_GiB, {0}, node_kind::dram},
                  {1, 64_GiB, {}, node_kind::memory_only},
                  {2, 96_GiB, {}, node_kind::gpu_memory}};
  second.allowed_cpus = {0, 2};
  second.distances = {{0, 1, 14}};
  second.gpus = {{{0, 0x3b, 0, 0}, "driver's name", 1U, 63e9}, {{0x10000, 1, 0, 0}, "beyond 16 bits", 0U, {}}};
  second.drives = {{"nvme0n1", vtier::pci_address{0, 1, 0, 0}, 1U},
                   {"nvme1n1", vtier::pci_address{0x10001, 0x8a, 0, 0}, 1U}};
  second.notes = {"said once", "said once"};
  second.memory_limit = vtier::memory_limit{8_GiB, 1_GiB, "a file"};  // hwloc knows of none
  const machine m{vtier::merge_parts(first, second)};
  REQUIRE(m.nodes().size() == 3);
  CHECK(m.node(0)->cpus == numbers{0});
  CHECK(m.node(1)->kind == node_kind::memory_only);
  CHECK(m.node(1)->cpus.empty());
  CHECK(m.node(2)->kind == node_kind::gpu_memory);
  CHECK(m.allowed_cpus() == numbers{0, 2});
  CHECK(m.distance(0, 1) == 14U);
  REQUIRE(m.gpus().size() == 2);
  CHECK(m.gpus()[0].name == "driver's name");
  CHECK(m.gpus()[0].node == 1U);
  CHECK(*m.gpus()[0].link_bytes_per_second > 60e9);
  REQUIRE(m.drives().size() == 2);
  CHECK(m.drives()[0].node == 0U);  // what the first knows stays
  CHECK(m.drives()[0].address == vtier::pci_address{0, 1, 0, 0});
  CHECK(m.drives()[1].address == vtier::pci_address{0x10001, 0x8a, 0, 0});
  CHECK(m.notes() == std::vector<std::string>{"said once"});
  REQUIRE(m.memory_limit());
  CHECK(m.memory_limit()->free_bytes() == 7_GiB);
}

TEST_CASE("discover: a second view that knows nothing takes nothing away") {
  machine_parts first;
  first.nodes = {{4, 64_GiB, {0, 1}, node_kind::dram}};
  first.allowed_cpus = {0, 1};
  machine_parts nothing;
  nothing.numa_known = false;
  nothing.nodes = {{0, 0, {}, node_kind::dram}};
  const machine m{vtier::merge_parts(first, nothing)};
  REQUIRE(m.nodes().size() == 1);
  CHECK(m.nodes()[0].os_index == 4);
  CHECK(m.nodes()[0].cpus == numbers{0, 1});
}
