// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/limited.hpp>

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/device/host.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/numa.hpp>
#include <vtier/memory/pool.hpp>

#include "contract/resource.hpp"
#include "support/catch.hpp"
#include "support/death.hpp"

using namespace vtier::literals;

namespace {

using device = vtier::host::device;

static_assert(vtier::host_resource<vtier::limited<vtier::numa>>);
static_assert(vtier::resource<vtier::limited<vtier::limited<vtier::pool<vtier::numa>>>>);
static_assert(!vtier::stream_ordered_resource<vtier::limited<vtier::numa>>);
static_assert(vtier::stream_ordered_resource<vtier::limited<vtier::hbm<device>>>);
static_assert(!vtier::host_resource<vtier::limited<vtier::hbm<device>>>);

}  // namespace

TEST_CASE("a limited resource is a resource", "[memory][limited]") {
  SECTION("below the cap there is more") {
    const auto make = [](std::size_t budget) {
      return vtier::limited{vtier::numa{{.budget = budget + 1_GiB}}, {.budget = budget}};
    };
    vtier::test::check_resource(make, vtier::test::host_bytes{}, 3);
  }
  SECTION("below the cap there is the same") {
    const auto make = [](std::size_t budget) {
      return vtier::limited{vtier::numa{{.budget = budget}}, {.budget = budget}};
    };
    vtier::test::check_resource(make, vtier::test::host_bytes{}, 1);
    vtier::test::check_slab(make, vtier::test::host_bytes{});
  }
  SECTION("hbm") {
    const device on;
    const auto make = [&](std::size_t budget) {
      return vtier::limited{vtier::hbm<device>{on, {.budget = budget + 1_MiB}}, {.budget = budget}};
    };
    vtier::test::check_resource(make, vtier::test::device_bytes<device>{on}, 1);
  }
}

TEST_CASE("several caps share one resource", "[memory][limited]") {
  const vtier::pool below{vtier::numa{{.budget = 1_MiB, .name = "dram"}}};
  const vtier::limited first{below, {.budget = 256_KiB, .name = "activations"}};
  const vtier::limited second{below, {.budget = 900_KiB}};
  CHECK(first.name() == "activations");
  CHECK(second.name() == "dram");
  CHECK_FALSE(first == second);
  void* const p = first.allocate(100, 16);
  CHECK(first.used_bytes() == 100);
  CHECK(first.free_bytes() == 256_KiB - 100);
  CHECK(first.budget_bytes() == 256_KiB);
  CHECK(below.used_bytes() == 256);
  try {
    static_cast<void>(first.allocate(256_KiB, 16));
    FAIL("more than the cap was given");
  } catch (const vtier::out_of_memory& e) {
    CHECK(e.tier() == "activations");
    CHECK(std::string{e.what()}.find("of a budget of 256 KiB") != std::string::npos);
  }
  CHECK(below.peak_bytes() == 256);  // the resource below was not asked

  void* const q = second.allocate(800_KiB, 16);
  CHECK(first.free_bytes() == below.free_bytes());  // less than the cap leaves
  const std::size_t used_before = first.used_bytes();
  CHECK_THROWS_AS(first.allocate(250_KiB, 16), vtier::out_of_memory);  // the cap has room, the pool has not
  CHECK(first.used_bytes() == used_before);
  CHECK_THROWS_AS(second.allocate(1, 3), vtier::usage_error);
  CHECK_THROWS_AS(second.allocate((std::numeric_limits<std::size_t>::max)(), 1), vtier::out_of_memory);
  second.deallocate(q, 800_KiB, 16);
  first.deallocate(p, 100, 16);
  CHECK(first.used_bytes() == 0);
  CHECK(first.peak_bytes() == 250_KiB + 100);  // what was charged for a moment counts
  CHECK(below.used_bytes() == 0);
}

TEST_CASE("a cap keeps to its bytes in stream order", "[memory][limited]") {
  const device on;
  const vtier::limited memory{vtier::hbm<device>{on, {.budget = 1_MiB}}, {.budget = 64_KiB}};
  const auto stream = on.make_stream();
  void* const p = memory.allocate(stream, 60_KiB, 16);
  CHECK(memory.used_bytes() == 60_KiB);
  CHECK_THROWS_AS(memory.allocate(stream, 5_KiB, 16), vtier::out_of_memory);
  CHECK_THROWS_AS(memory.allocate(stream, 1_KiB, 512), vtier::usage_error);  // hbm cannot: nothing is charged
  CHECK(memory.used_bytes() == 60_KiB);
  memory.deallocate(stream, p, 60_KiB, 16);
  CHECK(memory.used_bytes() == 0);
  CHECK(memory.allocate(stream, 0, 16) == nullptr);
  CHECK_THROWS_AS(memory.allocate(stream, 0, 3), vtier::usage_error);
  memory.deallocate(stream, nullptr, 7, 16);
  on.synchronize(stream);
}

TEST_CASE("a slab is all that is below, or none", "[memory][limited]") {
  const vtier::numa below{{.budget = 1_MiB}};
  const vtier::limited small{below, {.budget = 512_KiB}};
  CHECK_THROWS_AS(small.make_slab(), vtier::usage_error);
  CHECK(below.free_bytes() == 1_MiB);
  void* const held = below.allocate(768_KiB, 16);
  auto slab = std::optional{small.make_slab()};
  CHECK(slab->size_bytes() == 256_KiB);
  CHECK(small.used_bytes() == 256_KiB);
  slab.reset();
  CHECK(small.used_bytes() == 0);
  below.deallocate(held, 768_KiB, 16);
  CHECK(below.free_bytes() == 1_MiB);
}

TEST_CASE("another thread may use a cap up", "[memory][limited]") {
  const vtier::limited memory{vtier::numa{{.budget = 8_MiB}}, {.budget = 1_MiB}};
  std::size_t refused[2] = {0, 0};
  std::vector<void*> given[2];
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        try {
          given[t].push_back(memory.allocate(8_KiB, 16));
        } catch (const vtier::out_of_memory&) {
          ++refused[t];
        }
      }
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(given[0].size() + given[1].size() == 128);
  CHECK(refused[0] + refused[1] == 400 - 128);
  CHECK(memory.free_bytes() == 0);
  for (const auto& list : given) {
    for (void* const p : list) memory.deallocate(p, 8_KiB, 16);
  }
  CHECK(memory.used_bytes() == 0);
}

TEST_CASE("bytes that the cap never gave are a programmer's error", "[memory][limited]") {
  const vtier::pool below{vtier::numa{{.budget = 64_KiB}}};
  const vtier::limited memory{below, {.budget = 64_KiB}};
  void* const p = below.allocate(512, 16);
  CHECK(vtier::test::in_child([&] { memory.deallocate(p, 512, 16); }).asserted("given back to a budget"));
  below.deallocate(p, 512, 16);
}
