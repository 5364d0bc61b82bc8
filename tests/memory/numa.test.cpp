// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/numa.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/topology/numa.hpp>

#include "contract/resource.hpp"
#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/denied_calls.hpp"
#include "support/process_memory.hpp"
#include "topology/fake_tree.hpp"

using namespace vtier::literals;

TEST_CASE("numa is a resource", "[memory][numa]") {
  const auto make = [](std::size_t budget) { return vtier::numa{{.budget = budget, .name = "dram"}}; };
  vtier::test::check_resource(make, vtier::test::host_bytes{}, 2);
  vtier::test::check_slab(make, vtier::test::host_bytes{});
}

TEST_CASE("alignments up to huge pages and beyond are kept", "[memory][numa]") {
  const vtier::numa memory{{.budget = 16_MiB}};
  for (const std::size_t alignment : {4_KiB, 64_KiB, 2_MiB, 64_MiB}) {
    for (const std::size_t size : {1_B, 3_MiB}) {
      CAPTURE(alignment, size);
      void* const p = memory.allocate(size, alignment);
      CHECK(reinterpret_cast<std::uintptr_t>(p) % alignment == 0);
      std::memset(p, 1, size);
      memory.deallocate(p, size, alignment);
    }
  }
  CHECK_THROWS_AS(memory.allocate(1, std::size_t{1} << 63U), vtier::out_of_memory);
  CHECK(memory.free_bytes() == 16_MiB);
}

TEST_CASE("a slab that shrinks gives its pages back to the system, and gets zeros for them", "[memory][numa]") {
  const vtier::numa memory{{.budget = 8_MiB}};
  auto slab = memory.make_slab();
  std::memset(slab.base(), 1, 8_MiB);
  const auto there = [&] {
    std::vector<unsigned char> pages(8_MiB / 4_KiB);
    REQUIRE(::mincore(slab.base(), 8_MiB, pages.data()) == 0);
    return static_cast<std::size_t>(std::count_if(pages.begin(), pages.end(), [](unsigned char c) { return c & 1U; }));
  };
  CHECK(there() == 8_MiB / 4_KiB);
  slab.shrink(2_MiB - 1);  // the page of the last byte stays
  CHECK(there() == 2_MiB / 4_KiB);
  CHECK(memory.free_bytes() == 0);
  slab.commit(8_MiB);
  CHECK(slab.base()[2_MiB - 1] == std::byte{1});
  CHECK(slab.base()[2_MiB] == std::byte{0});
}

// VO-C04
TEST_CASE("a node that does not exist is refused, node by node, and nothing is charged", "[memory][numa]") {
  if (!vtier::can_bind_pages()) {
    WARN("skipped: built without libnuma, nothing is bound");
    return;
  }
  for (const unsigned node : {1'000U, 4'095U, 4'000'000'000U}) {
    CAPTURE(node);
    const vtier::numa memory{node, {.budget = 16_MiB}};  // making it asks nothing of the system yet
    try {
      memory.deallocate(memory.allocate(4096, 16), 4096, 16);
      CHECK_FALSE(memory.notes().empty());  // a container that forbids the call says so before it looks at the node
    } catch (const vtier::usage_error& e) {
      CHECK(std::string{e.what()}.find(std::to_string(node)) != std::string::npos);
      CHECK_THROWS_AS(memory.make_slab(), vtier::usage_error);
    }
    CHECK(memory.free_bytes() == 16_MiB);
  }
}

TEST_CASE("memory bound to a node is there, or a note says why not", "[memory][numa]") {
  const vtier::numa memory{0U, {.budget = 8_MiB}};
  void* const p = memory.allocate(4_MiB, 16);
  std::memset(p, 1, 4_MiB);
  const auto share = vtier::page_node_share(p, 4_MiB, 0);
  if (memory.notes().empty()) {
    CHECK(share.value_or(1.0) == 1.0);
  } else {
    WARN("not bound: " + memory.notes().front());
  }
  memory.deallocate(p, 4_MiB, 16);
  const vtier::numa unbound{{.budget = 1_MiB}};
  CHECK(unbound.make_slab().properties().place.find("no particular") != std::string::npos);
  CHECK(unbound.notes().empty());
}

// VO-C05
TEST_CASE("where binding is forbidden, memory comes unbound with one note and nothing on stderr", "[memory][numa]") {
  if (!vtier::can_bind_pages()) {
    WARN("skipped: built without libnuma, nothing is bound");
    return;
  }
  const auto end = vtier::test::in_child([] {
    if (!vtier::test::deny_memory_policy_calls()) ::_exit(3);
    const vtier::numa memory{0U, {.budget = 8_MiB, .name = "dram"}};
    for (int i = 0; i < 1'000; ++i) memory.deallocate(memory.allocate(4096, 16), 4096, 16);
    void* const p = memory.allocate(4096, 16);
    std::memset(p, 1, 4096);
    return memory.notes().size() == 1 && memory.notes()[0].find("dram") != std::string::npos;
  });
  if (end.exit_status == 3) {
    WARN("skipped: this system allows no filter of system calls");
    return;
  }
  CHECK(end.exit_status == 0);
  CHECK(end.text.empty());
}

// VO-C09
TEST_CASE("a slab larger than the machine is refused at once, with the numbers", "[memory][numa]") {
  const std::size_t budget = 4 * vtier::test::physical_bytes();
  const vtier::numa memory{{.budget = budget, .name = "dram"}};
  const std::size_t before = vtier::test::status_bytes("VmRSS:");
  try {
    static_cast<void>(memory.make_slab());
    FAIL("four times the machine's memory was given");
  } catch (const vtier::out_of_memory& e) {
    const std::string text = e.what();
    CAPTURE(text);
    CHECK(e.asked_bytes() == memory.budget_bytes());
    CHECK(e.free_bytes() > 0);
    CHECK(e.free_bytes() < vtier::test::physical_bytes());
    CHECK(text.find(vtier::format_bytes(budget)) != std::string::npos);
    CHECK(text.find("available") != std::string::npos);
  }
  CHECK(memory.free_bytes() == budget);
  CHECK(vtier::test::status_bytes("VmRSS:") < before + 64_MiB);
  void* const some = memory.allocate(1_MiB, 16);  // only what cannot be had is refused
  std::memset(some, 1, 1_MiB);
  memory.deallocate(some, 1_MiB, 16);
}

// VO-C06
TEST_CASE("more than a container may use is refused before the kernel ends the process", "[memory][numa]") {
  const vtier::test::fake_tree tree;
  tree.file("proc/self/cgroup", "0::/box");
  tree.file("sys/fs/cgroup/box/memory.max", std::to_string(32_MiB));
  vtier::notes remarks;
  vtier::detail::page_request request;
  request.name = "dram";
  request.roots = tree.roots();
  void* const fits = vtier::detail::map_pages(32_MiB, 4096, request, remarks);
  vtier::detail::unmap_pages(fits, 32_MiB);
  try {
    static_cast<void>(vtier::detail::map_pages(33_MiB, 4096, request, remarks));
    FAIL("nothing was thrown");
  } catch (const vtier::out_of_memory& e) {
    const std::string text = e.what();
    CAPTURE(text);
    CHECK(text.find("dram: asked 33 MiB") != std::string::npos);
    CHECK(text.find("may use 32 MiB") != std::string::npos);
    CHECK(text.find("sys/fs/cgroup/box/memory.max") != std::string::npos);
    CHECK(e.free_bytes() == 32_MiB);
  }
  // What others of the group, or an earlier tier, have taken is not there any more.
  tree.file("sys/fs/cgroup/box/memory.stat", "anon " + std::to_string(24_MiB));
  vtier::detail::unmap_pages(vtier::detail::map_pages(8_MiB, 4096, request, remarks), 8_MiB);
  CHECK_THROWS_AS(vtier::detail::map_pages(9_MiB, 4096, request, remarks), vtier::out_of_memory);
  CHECK(remarks.list().empty());
}
