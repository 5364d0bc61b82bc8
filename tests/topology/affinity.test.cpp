// SPDX-License-Identifier: Apache-2.0
#include <vtier/topology/affinity.hpp>

#include <sched.h>

#include <optional>
#include <thread>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/topology/machine_parts.hpp>

#include "support/catch.hpp"

using namespace vtier::literals;
using vtier::machine_parts;
using vtier::node_kind;
using numbers = std::vector<unsigned>;

namespace {

machine_parts two_sockets() {
  machine_parts parts;
  parts.nodes = {{0, 64_GiB, {0, 1}, node_kind::dram}, {1, 64_GiB, {2, 3}, node_kind::dram}};
  parts.distances = {{0, 0, 10}, {0, 1, 21}, {1, 0, 21}, {1, 1, 10}};
  return parts;
}

}  // namespace

TEST_CASE("affinity: nodes by distance, and a node is always closest to itself") {
  const auto parts = two_sockets();
  CHECK(vtier::nodes_by_distance(parts, 0) == numbers{0, 1});
  CHECK(vtier::nodes_by_distance(parts, 1) == numbers{1, 0});

  auto flat = parts;  // a virtual machine that says 10 for every pair, and a larger node 0
  flat.distances = {{0, 0, 10}, {0, 1, 10}, {1, 0, 10}, {1, 1, 10}};
  flat.nodes[0].memory_bytes = 128_GiB;
  CHECK(vtier::nodes_by_distance(flat, 1) == numbers{1, 0});
}

TEST_CASE("affinity: nearest node first, then its socket mates (VO-E06)") {
  machine_parts parts;  // two sockets of three nodes
  for (unsigned i = 0; i < 6; ++i) {
    parts.nodes.push_back({i, 256_GiB, {i}, node_kind::dram});
    for (unsigned j = 0; j < 6; ++j) parts.distances.push_back({i, j, i == j ? 10U : (i / 3 == j / 3 ? 12U : 21U)});
  }
  CHECK(vtier::nodes_by_distance(parts, 4) == numbers{4, 3, 5, 0, 1, 2});
}

TEST_CASE("affinity: unknown locality is never an index (VO-E02)") {
  auto parts = two_sockets();
  CHECK(!vtier::nearest_memory(parts, std::nullopt));
  CHECK(!vtier::nearest_memory(parts, 4294967295U));
  CHECK(!vtier::nearest_memory(parts, 7U));
  CHECK(vtier::nearest_memory(parts, 1U) == 1U);

  parts.nodes.pop_back();  // with one node there is nothing to choose
  CHECK(vtier::nearest_memory(parts, std::nullopt) == 0U);
  parts.numa_known = false;
  CHECK(!vtier::nearest_memory(parts, std::nullopt));
  CHECK(!vtier::default_node(parts));
}

TEST_CASE("affinity: memory without CPUs is no default, its threads run next to it (VO-E03)") {
  machine_parts parts;
  for (unsigned i = 0; i < 4; ++i) parts.nodes.push_back({i, 32_GiB, {2 * i, 2 * i + 1}, node_kind::dram});
  for (unsigned i = 4; i < 8; ++i) parts.nodes.push_back({i, 64_GiB, {}, node_kind::memory_only});
  for (unsigned i = 0; i < 8; ++i) {
    for (unsigned j = 0; j < 8; ++j) parts.distances.push_back({i, j, i == j ? 10U : (i % 4 == j % 4 ? 13U : 21U)});
  }
  CHECK(vtier::nearest_memory(parts, 0U) == 0U);
  CHECK(vtier::nearest_memory(parts, 6U) == 2U);
  CHECK(vtier::nodes_by_distance(parts, 1) == numbers{1, 0, 2, 3});
  CHECK(vtier::cpus_for_node(parts, 4) == numbers{0, 1});
  CHECK(vtier::cpus_for_node(parts, 7) == numbers{6, 7});
  CHECK(vtier::find_node(parts, 4)->memory_bytes == 64_GiB);  // still offered by name
}

TEST_CASE("affinity: GPU memory and empty nodes are never taken (VO-E04)") {
  machine_parts parts;
  parts.nodes.push_back({0, 480_GiB, {0, 1, 2}, node_kind::dram});
  parts.nodes.push_back({1, 96_GiB, {}, node_kind::gpu_memory});
  for (unsigned i = 2; i < 9; ++i) parts.nodes.push_back({i, 0, {}, node_kind::memory_only});
  for (unsigned from = 0; from < 9; ++from) {
    CHECK(vtier::nodes_by_distance(parts, from) == numbers{0});
    CHECK(vtier::nearest_memory(parts, from) == 0U);
  }
  CHECK(vtier::default_node(parts) == 0U);
  parts.nodes.erase(parts.nodes.begin());
  CHECK(!vtier::default_node(parts));  // rather none than the GPU's memory
}

TEST_CASE("affinity: numbers of nodes are not positions (VO-E05)") {
  machine_parts parts;
  parts.nodes = {{4, 417_GiB, {0}, node_kind::dram},
                 {5, 209_GiB, {1}, node_kind::dram},
                 {6, 209_GiB, {2}, node_kind::dram},
                 {7, 210_GiB, {3}, node_kind::dram}};
  CHECK(vtier::default_node(parts) == 4U);
  CHECK(vtier::find_node(parts, 0) == nullptr);
  CHECK(vtier::nearest_memory(parts, 6U) == 6U);
  CHECK(!vtier::nearest_memory(parts, 0U));
  CHECK(vtier::cpus_for_node(parts, 7) == numbers{3});
  CHECK(vtier::cpus_for_node(parts, 0).empty());
  CHECK(vtier::node_distance_between(parts, 5, 5) == 10U);
  CHECK(!vtier::node_distance_between(parts, 0, 0));
  CHECK(!vtier::node_distance_between(parts, 4, 5));
}

TEST_CASE("affinity: CPUs on a node without memory use what is closest, then what is larger (VO-E11)") {
  machine_parts parts;
  parts.nodes = {{0, 8664_MiB, {}, node_kind::memory_only},
                 {1, 5602_MiB, {}, node_kind::memory_only},
                 {2, 0, {0, 1, 2, 3}, node_kind::dram},
                 {3, 1023_MiB, {}, node_kind::memory_only}};
  parts.distances = {{2, 0, 20}, {2, 1, 20}, {2, 2, 10}, {2, 3, 20}, {0, 2, 20}, {1, 2, 20}, {3, 2, 20}};
  CHECK(vtier::default_node(parts) == 0U);
  CHECK(vtier::nodes_by_distance(parts, 2) == numbers{0, 1, 3});
  CHECK(vtier::nearest_memory(parts, 2U) == 0U);
  CHECK(vtier::cpus_for_node(parts, 2) == numbers{0, 1, 2, 3});
  CHECK(vtier::cpus_for_node(parts, 0) == numbers{0, 1, 2, 3});
}

TEST_CASE("affinity: a node whose CPUs are all forbidden gives no CPUs, not those of another (VO-E07)") {
  auto parts = two_sockets();
  parts.nodes[1].cpus.clear();
  CHECK(vtier::cpus_for_node(parts, 1).empty());
  CHECK(vtier::nearest_memory(parts, 1U) == 1U);
}

TEST_CASE("affinity: common CPUs") {
  CHECK(vtier::common_cpus(numbers{3, 1, 1, 9}, numbers{1, 2, 3}) == numbers{1, 3});
  CHECK(vtier::common_cpus(numbers{}, numbers{1}).empty());
}

TEST_CASE("affinity: a thread is bound to the allowed part of a set, or left as it was (VO-E07)") {
  const numbers all = vtier::bound_cpus();
  REQUIRE(!all.empty());
  numbers after_partly;
  numbers after_nothing;
  bool partly = false;
  bool nothing = true;
  bool none = true;
  std::thread([&] {
    none = vtier::bind_this_thread(numbers{});
    nothing = vtier::bind_this_thread(numbers{500000, 500001});
    after_nothing = vtier::bound_cpus();
    partly = vtier::bind_this_thread(numbers{all.back(), 500000});
    after_partly = vtier::bound_cpus();
  }).join();
  CHECK(!none);
  CHECK(!nothing);
  CHECK(after_nothing == all);
  CHECK(partly);
  CHECK(after_partly == numbers{all.back()});
  CHECK(vtier::bound_cpus() == all);  // nobody else was bound
  CHECK(static_cast<int>(all.size()) == [] {
    ::cpu_set_t set;
    CPU_ZERO(&set);
    return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : -1;
  }());
}
