// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/on_failure.hpp>

#include <cstddef>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/device/host.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/limited.hpp>
#include <vtier/memory/numa.hpp>
#include <vtier/memory/pool.hpp>

#include "contract/resource.hpp"
#include "support/catch.hpp"

using namespace vtier::literals;

namespace {

using device = vtier::host::device;

static_assert(vtier::host_resource<vtier::on_failure<vtier::numa>>);
static_assert(vtier::stream_ordered_resource<vtier::on_failure<vtier::hbm<device>>>);

const auto gives_up = [](std::size_t, std::size_t) { return false; };

}  // namespace

TEST_CASE("a resource with a second chance is a resource", "[memory][on_failure]") {
  const auto make = [](std::size_t budget) { return vtier::on_failure{vtier::numa{{.budget = budget}}, gives_up}; };
  vtier::test::check_resource(make, vtier::test::host_bytes{}, 1);
  vtier::test::check_slab(make, vtier::test::host_bytes{});
  const device on;
  const auto make_device = [&](std::size_t budget) {
    return vtier::on_failure{vtier::hbm<device>{on, {.budget = budget}}, gives_up};
  };
  vtier::test::check_resource(make_device, vtier::test::device_bytes<device>{on}, 1);
}

TEST_CASE("a cache makes room and the allocation is given", "[memory][on_failure]") {
  const vtier::limited below{vtier::pool{vtier::numa{{.budget = 4_MiB}}}, {.budget = 1_MiB, .name = "share"}};
  std::vector<void*> cache;
  std::vector<std::pair<std::size_t, std::size_t>> asked;
  const vtier::on_failure memory{below, [&](std::size_t size_bytes, std::size_t attempt) {
                                   CHECK(std::current_exception() == nullptr);
                                   asked.emplace_back(size_bytes, attempt);
                                   if (cache.empty()) return false;
                                   below.deallocate(cache.back(), 256_KiB, 16);
                                   cache.pop_back();
                                   return true;
                                 }};
  for (int i = 0; i < 4; ++i) cache.push_back(memory.allocate(256_KiB, 16));
  CHECK(asked.empty());
  void* const p = memory.allocate(500_KiB, 16);
  CHECK(asked == std::vector<std::pair<std::size_t, std::size_t>>{{500_KiB, 1}, {500_KiB, 2}});
  CHECK(cache.size() == 2);
  asked.clear();
  CHECK_THROWS_AS(memory.allocate(1_MiB, 16), vtier::out_of_memory);  // the cache is not enough
  CHECK(asked.size() == 3);
  CHECK(cache.empty());
  memory.deallocate(p, 500_KiB, 16);
  CHECK(below.used_bytes() == 0);
}

TEST_CASE("the function is asked a bounded number of times", "[memory][on_failure]") {
  std::size_t calls = 0;
  const auto promises = [&](std::size_t, std::size_t attempt) { return attempt == ++calls; };
  const vtier::numa below{{.budget = 64_KiB, .name = "dram"}};
  try {
    static_cast<void>(vtier::on_failure{below, promises}.allocate(1_MiB, 16));
    FAIL("what is not there was given");
  } catch (const vtier::out_of_memory& e) {
    CHECK(e.tier() == "dram");
    CHECK(e.asked_bytes() == 1_MiB);
  }
  CHECK(calls == 8);
  calls = 0;
  CHECK_THROWS_AS((vtier::on_failure{below, promises, {.attempts_max = 2}}.allocate(1_MiB, 16)), vtier::out_of_memory);
  CHECK(calls == 2);
  calls = 0;
  CHECK_THROWS_AS((vtier::on_failure{below, promises, {.attempts_max = 0}}.allocate(1_MiB, 16)), vtier::out_of_memory);
  CHECK(calls == 0);
}

TEST_CASE("other errors are not for the function, and its own pass through", "[memory][on_failure]") {
  const vtier::limited below{vtier::numa{{.budget = 64_KiB}}, {.budget = 64_KiB}};
  std::size_t calls = 0;
  const vtier::on_failure memory{below, [&](std::size_t, std::size_t) -> bool {
                                   ++calls;
                                   throw std::runtime_error{"no way"};
                                 }};
  CHECK_THROWS_AS(memory.allocate(1, 3), vtier::usage_error);
  CHECK(calls == 0);
  CHECK_THROWS_AS(memory.allocate(1_MiB, 16), std::runtime_error);
  CHECK(calls == 1);
  CHECK(below.used_bytes() == 0);
  void* const p = memory.allocate(64_KiB, 16);
  CHECK(p != nullptr);
  memory.deallocate(p, 64_KiB, 16);
  CHECK_THROWS_AS((vtier::on_failure{below, vtier::make_room{}}), vtier::usage_error);
}

TEST_CASE("room is made in stream order and for a slab too", "[memory][on_failure]") {
  const device on{{.memory_bytes = 64_KiB, .name = "little"}};
  const vtier::hbm<device> below{on, {.budget = 64_KiB, .grows = false}};
  const vtier::hbm<device> other{on, {.budget = 64_KiB}};
  void* cached = other.allocate(48_KiB, 16);
  const vtier::on_failure memory{below, [&](std::size_t, std::size_t) {
                                   if (cached == nullptr) return false;
                                   other.deallocate(std::exchange(cached, nullptr), 48_KiB, 16);
                                   return true;
                                 }};
  const auto stream = on.make_stream();
  void* const p = memory.allocate(stream, 32_KiB, 16);
  CHECK(cached == nullptr);
  memory.deallocate(stream, p, 32_KiB, 16);
  on.synchronize(stream);
  cached = other.allocate(48_KiB, 16);
  const auto slab = memory.make_slab();
  CHECK(slab.size_bytes() == 64_KiB);
  CHECK(cached == nullptr);
}
