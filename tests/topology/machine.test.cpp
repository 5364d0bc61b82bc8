// SPDX-License-Identifier: Apache-2.0
#include <vtier/topology/machine.hpp>

#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <vtier/core/bytes.hpp>

#include "support/catch.hpp"

using namespace vtier::literals;
using vtier::machine;
using vtier::machine_parts;
using vtier::node_kind;

namespace {

struct some_device {
  std::string text;
  [[nodiscard]] std::string bus_id() const { return text; }
};

machine_parts partition() {  // no node 0 (VO-E05)
  machine_parts parts;
  parts.nodes = {{7, 210_GiB, {3}, node_kind::dram},
                 {4, 417_GiB, {0}, node_kind::dram},
                 {6, 209_GiB, {2}, node_kind::dram},
                 {5, 209_GiB, {1}, node_kind::dram}};
  parts.gpus = {{{0x10001, 0x3b, 0, 0}, "first", 6U, {}}, {{0, 0x5e, 0, 0}, "second", std::nullopt, {}}};
  parts.drives = {{"nvme0n1", vtier::pci_address{0x10001, 0x8a, 0, 0}, 7U}, {"sda", {}, 0U}};
  parts.allowed_cpus = {0, 1, 2, 3};
  return parts;
}

}  // namespace

TEST_CASE("machine: nodes in order of their numbers, which are not positions (VO-E05)") {
  const machine m{partition()};
  REQUIRE(m.nodes().size() == 4);
  CHECK(m.nodes().front().os_index == 4);
  CHECK(m.nodes().back().os_index == 7);
  REQUIRE(m.node(5) != nullptr);
  CHECK(m.node(5)->cpus.front() == 1);
  CHECK(m.node(0) == nullptr);
  CHECK(m.distance(4, 4) == 10U);
  CHECK(!m.distance(4, 7));
}

TEST_CASE("machine: the nearest node of a device, by its address in any form") {
  const machine m{partition()};
  CHECK(m.nearest_node(some_device{"10001:3b:00.0"}) == 6U);
  CHECK(m.nearest_node(some_device{"00010001:3B:00.0"}) == 6U);
  CHECK(m.nearest_node(some_device{""}) == 4U);  // a host device: the first that there is, not 0
  CHECK(!m.nearest_node(some_device{"0000:5e:00.0"}));
  CHECK(!m.nearest_node(some_device{"0001:3b:00.0"}));  // the domain counts
  CHECK(!m.nearest_node(some_device{"garbage"}));
  CHECK(m.nearest_node(vtier::pci_address{0x10001, 0x8a, 0, 0}) == 7U);
  CHECK(m.nearest_node(m.drives()[0]) == 7U);
}

TEST_CASE("machine: a node number that no node has is unknown, and a lost GPU is said once (VO-E02)") {
  const machine m{partition()};
  CHECK(!m.drives()[1].node);
  CHECK(!m.nearest_node(m.drives()[1]));
  REQUIRE(m.notes().size() == 1);
  CHECK(m.notes()[0].find("0000:5e:00.0") != std::string::npos);
  CHECK(machine{m.parts()}.notes().size() == 1);

  auto wrong = partition();
  wrong.gpus[0].node = 4294967295U;
  const machine n{std::move(wrong)};
  CHECK(!n.gpus()[0].node);
  CHECK(n.notes().size() == 2);
}

TEST_CASE("machine: with one node there is nothing to say about a GPU without a place") {
  machine_parts parts;
  parts.nodes = {{0, 8_GiB, {0, 1}, node_kind::dram}};
  parts.gpus = {{{0, 5, 0, 0}, "only", std::nullopt, {}}};
  const machine m{std::move(parts)};
  CHECK(m.notes().empty());
  CHECK(m.nearest_node(some_device{"0000:05:00.0"}) == 0U);
}

TEST_CASE("machine: no node is counted twice, and an empty machine has answers") {
  machine_parts parts;
  parts.nodes = {{3, 8_GiB, {0}, node_kind::dram}, {3, 9_GiB, {1}, node_kind::dram}};
  CHECK(machine{std::move(parts)}.nodes().size() == 1);
  const machine empty{machine_parts{}};
  CHECK(!empty.nearest_node(some_device{""}));
  CHECK(!empty.nearest_node(some_device{"0000:05:00.0"}));
  CHECK(empty.cpus_for(0).empty());
  static_assert(std::is_nothrow_move_constructible_v<machine> && std::is_copy_assignable_v<machine>);
}
