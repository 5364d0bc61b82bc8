// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/pool.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/device/host.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/numa.hpp>
#include <vtier/memory/pinned.hpp>

#include "contract/resource.hpp"
#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/scratch_directory.hpp"

using namespace vtier::literals;

namespace {

using device = vtier::host::device;

}  // namespace

TEST_CASE("a pool over any resource is a resource", "[memory][pool]") {
  SECTION("numa") {
    const auto make = [](std::size_t budget) { return vtier::pool{vtier::numa{{.budget = budget}}}; };
    vtier::test::check_resource(make, vtier::test::host_bytes{});
  }
  SECTION("pinned") {
    const auto make = [](std::size_t budget) { return vtier::pool{vtier::pinned{{.budget = budget}}}; };
    vtier::test::check_resource(make, vtier::test::host_bytes{});
  }
  SECTION("mapped_file") {
    const vtier::test::scratch_directory directory;
    const auto make = [&](std::size_t budget) {
      return vtier::pool{vtier::mapped_file{directory.path(), {.budget = budget}}};
    };
    vtier::test::check_resource(make, vtier::test::host_bytes{});
    CHECK(directory.empty());
  }
  SECTION("hbm") {
    const device on;
    const auto make = [&](std::size_t budget) { return vtier::pool{vtier::hbm<device>{on, {.budget = budget}}}; };
    vtier::test::check_resource(make, vtier::test::device_bytes<device>{on}, 3);
  }
}

TEST_CASE("a pool asks once and takes what is left", "[memory][pool]") {
  const vtier::numa memory{{.budget = 1_MiB, .name = "dram"}};
  void* const before = memory.allocate(256_KiB, 16);
  {
    const vtier::pool pool{memory};
    CHECK(memory.free_bytes() == 0);
    CHECK(pool.free_bytes() == 768_KiB);
    CHECK(pool.name() == "dram");
    CHECK_THROWS_AS(vtier::pool{memory}, vtier::usage_error);
    CHECK_THROWS_AS(pool.make_slab(), vtier::usage_error);
    void* const p = pool.allocate(1, 1);
    CHECK(pool.used_bytes() == 256);
    pool.deallocate(p, 1, 1);
    CHECK(pool.used_bytes() == 0);
    CHECK(pool.peak_bytes() == 256);
  }
  CHECK(memory.free_bytes() == 768_KiB);
  memory.deallocate(before, 256_KiB, 16);
}

TEST_CASE("free bytes in pieces are told from free bytes", "[memory][pool]") {
  const vtier::pool pool{vtier::numa{{.budget = 64_KiB}}};
  std::vector<void*> held;
  for (int i = 0; i < 16; ++i) held.push_back(pool.allocate(4_KiB, 256));
  for (std::size_t i = 0; i < 16; i += 2) pool.deallocate(held[i], 4_KiB, 256);
  CHECK(pool.free_bytes() == 32_KiB);
  try {
    static_cast<void>(pool.allocate(8_KiB, 256));
    FAIL("neighbours were given that are not free");
  } catch (const vtier::out_of_memory& e) {
    const std::string text = e.what();
    CAPTURE(text);
    CHECK(e.free_bytes() == 32_KiB);
    CHECK(text.find("32 KiB") != std::string::npos);
    CHECK(text.find("4 KiB in one piece") != std::string::npos);
  }
  pool.deallocate(held[1], 4_KiB, 256);  // joins its neighbours
  void* const joined = pool.allocate(12_KiB, 256);
  CHECK(joined == held[0]);
  pool.deallocate(joined, 12_KiB, 256);
  for (std::size_t i = 3; i < 16; i += 2) pool.deallocate(held[i], 4_KiB, 256);
  CHECK(pool.free_bytes() == 64_KiB);
}

TEST_CASE("large alignments move the start, not the neighbours", "[memory][pool]") {
  const vtier::pool pool{vtier::numa{{.budget = 1_MiB}}};
  void* const first = pool.allocate(100, 16);
  for (const std::size_t alignment : {512_B, 4_KiB, 64_KiB}) {
    CAPTURE(alignment);
    void* const p = pool.allocate(300, alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(p) % alignment == 0);
    CHECK(p != first);
    void* const q = pool.allocate(300, alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(q) % alignment == 0);
    pool.deallocate(p, 300, alignment);
    pool.deallocate(q, 300, alignment);
  }
  CHECK_THROWS_AS(pool.allocate(1, 1_TiB), vtier::out_of_memory);
  CHECK_THROWS_AS(pool.allocate(1, std::size_t{1} << 63U), vtier::out_of_memory);
  pool.deallocate(first, 100, 16);
  CHECK(pool.free_bytes() == 1_MiB);
}

TEST_CASE("a foreign pointer and a second free are programmers' errors", "[memory][pool]") {
  const vtier::pool pool{vtier::numa{{.budget = 64_KiB}}};
  void* const p = pool.allocate(512, 16);
  int foreign = 0;
  CHECK(vtier::test::in_child([&] { pool.deallocate(p, 512, 16); }).exit_status == 0);
  CHECK(vtier::test::in_child([&] {
          pool.deallocate(p, 512, 16);
          pool.deallocate(p, 512, 16);
        }).asserted("given back to its pool twice"));
  CHECK(vtier::test::in_child([&] { pool.deallocate(p, 1024, 16); }).asserted("another size"));
  CHECK(vtier::test::in_child([&] { pool.deallocate(&foreign, 4, 4); }).asserted("does not own it"));
  CHECK(vtier::test::in_child([&] { pool.deallocate(static_cast<char*>(p) + 256, 256, 16); }).asserted("does not own"));
  pool.deallocate(p, 512, 16);
}

TEST_CASE("a pool grows to what it needs and its pieces join again (VO-A07)", "[memory][pool]") {
  const vtier::pool pool{vtier::numa{{.budget = 64_MiB}}, {.growth_bytes = 4_KiB}};
  CHECK(pool.reserved_bytes() == 0);
  std::size_t after_first = 0;
  for (int round = 0; round < 10; ++round) {
    CAPTURE(round);
    void* const a = pool.allocate(1032, 16);
    void* const b = pool.allocate(1032, 16);
    CHECK(pool.live_count() == 2);
    pool.deallocate(a, 1032, 16);
    pool.deallocate(b, 1032, 16);
    void* const both = pool.allocate(2064, 16);
    CHECK(both == a);
    pool.deallocate(both, 2064, 16);
    if (round == 0) after_first = pool.reserved_bytes();
  }
  CHECK(after_first == 4_KiB);
  CHECK(pool.reserved_bytes() == after_first);

  // Taken piece by piece, given back piece by piece: the whole is one piece, up to the last byte of the budget.
  std::vector<void*> held;
  for (int i = 0; i < 64; ++i) held.push_back(pool.allocate(1_MiB, 16));
  CHECK_THROWS_AS(pool.allocate(1, 1), vtier::out_of_memory);
  for (std::size_t i = 0; i < held.size(); ++i) pool.deallocate(held[i * 27 % 64], 1_MiB, 16);
  void* const whole = pool.allocate(64_MiB, 256);
  CHECK(whole == held[0]);
  pool.deallocate(whole, 64_MiB, 256);
  CHECK(pool.peak_bytes() == 64_MiB);
  CHECK(pool.live_count() == 0);
}

TEST_CASE("memory that cannot be made to exist leaves the pool as it was", "[memory][pool]") {
  const vtier::pool pool{vtier::numa{{.budget = 1_MiB}}, {.growth_bytes = 0}};
  void* const p = pool.allocate(300, 16);
  CHECK(pool.reserved_bytes() == 512);
  CHECK_THROWS_AS(pool.allocate(2_MiB, 16), vtier::out_of_memory);
  CHECK_THROWS_AS(pool.allocate(~std::size_t{0}, 16), vtier::out_of_memory);
  CHECK_THROWS_AS(pool.allocate(~std::size_t{0} - 300, 4096), vtier::out_of_memory);
  CHECK_THROWS_AS(pool.allocate(16, 24), vtier::usage_error);
  CHECK(pool.reserved_bytes() == 512);
  CHECK(pool.used_bytes() == 512);
  pool.deallocate(p, 300, 16);
}

TEST_CASE("a pool for one thread takes no lock", "[memory][pool]") {
  const vtier::pool<vtier::numa, vtier::no_lock> pool{vtier::numa{{.budget = 1_MiB}}};
  STATIC_REQUIRE(vtier::resource<vtier::pool<vtier::numa, vtier::no_lock>>);
  void* const p = pool.allocate(100, 2_B);
  CHECK(pool.used_bytes() == 256);
  pool.deallocate(p, 100, 2_B);
  CHECK(pool.used_bytes() == 0);
}
