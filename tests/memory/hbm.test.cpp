// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/hbm.hpp>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/device/host.hpp>
#include <vtier/memory/pool.hpp>

#include "contract/resource.hpp"
#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/faulty_device.hpp"

using namespace vtier::literals;

namespace {

using device = vtier::host::device;
using hbm = vtier::hbm<device>;

}  // namespace

TEST_CASE("hbm is a resource", "[memory][hbm]") {
  const device on;
  const auto make = [&](std::size_t budget) { return hbm{on, {.budget = budget}}; };
  vtier::test::check_resource(make, vtier::test::device_bytes<device>{on}, 1);
  vtier::test::check_slab(make, vtier::test::device_bytes<device>{on});
}

TEST_CASE("device bytes are charged in multiples of 256 and come back to the device", "[memory][hbm]") {
  const device on{{.memory_bytes = 1_MiB, .name = "device"}};
  const std::size_t free_before = on.memory().free_bytes;
  {
    const hbm memory{on, {.budget = 64_KiB, .name = "first"}};
    void* const p = memory.allocate(257, 256);
    CHECK(memory.free_bytes() == 64_KiB - 512);
    CHECK(on.memory().free_bytes == free_before - 512);
    CHECK(memory.peak_bytes() == 512);
    memory.deallocate(p, 257, 256);
    CHECK(memory.budget_bytes() == 64_KiB);
    CHECK(memory.name() == "first");
    CHECK(memory.on() == on);
    CHECK_THROWS_AS(memory.allocate(1, 512), vtier::usage_error);
    auto slab = memory.make_slab();
    CHECK(slab.properties().place == "device");
    CHECK(on.memory().free_bytes == free_before);
    slab.commit(slab.size_bytes());
    CHECK(on.memory().free_bytes == free_before - 64_KiB);
  }
  CHECK(on.memory().free_bytes == free_before);
}

TEST_CASE("device bytes come and go in stream order", "[memory][hbm]") {
  const device on{{.memory_bytes = 1_MiB, .name = "device"}};
  const hbm memory{on, {.budget = 64_KiB}};
  const auto stream = on.make_stream();
  {
    std::vector<std::byte> source(1'000, std::byte{7});
    std::vector<std::byte> found(1'000);
    void* const p = memory.allocate(stream, 1'000, 16);
    CHECK(memory.free_bytes() == 64_KiB - 1_KiB);
    on.copy(stream, p, source.data(), source.size(), vtier::copy_direction::host_to_device);
    on.copy(stream, found.data(), p, found.size(), vtier::copy_direction::device_to_host);
    memory.deallocate(stream, p, 1'000, 16);
    CHECK(memory.free_bytes() == 64_KiB);
    on.synchronize(stream);
    CHECK(found == source);
  }
  CHECK(memory.allocate(stream, 0, 16) == nullptr);
  memory.deallocate(stream, nullptr, 0, 16);
  CHECK_THROWS_AS(memory.allocate(stream, 65_KiB, 16), vtier::out_of_memory);
  CHECK_THROWS_AS(memory.allocate(stream, 1, 3), vtier::usage_error);
  CHECK_THROWS_AS(memory.allocate(stream, 1, 512), vtier::usage_error);
  CHECK(memory.free_bytes() == 64_KiB);
  on.synchronize(stream);
  CHECK(on.memory().free_bytes == 1_MiB);
}

TEST_CASE("where the device has less than the budget, its refusal changes nothing", "[memory][hbm]") {
  const device on{{.memory_bytes = 64_KiB, .name = "little device"}};
  const hbm memory{on, {.budget = 1_MiB}};
  CHECK_THROWS_AS(memory.allocate(128_KiB, 16), vtier::out_of_memory);
  CHECK_THROWS_AS((hbm{on, {.budget = 1_MiB, .grows = false}}.make_slab()), vtier::out_of_memory);
  {
    auto slab = memory.make_slab();
    CHECK_THROWS_AS(slab.commit(1_MiB), vtier::out_of_memory);
    CHECK(on.memory().free_bytes == 64_KiB);
    slab.commit(64_KiB);
  }
  CHECK(memory.free_bytes() == 1_MiB);
  void* const p = memory.allocate(64_KiB, 16);
  CHECK(p != nullptr);
  memory.deallocate(p, 64_KiB, 16);
  CHECK(on.memory().free_bytes == 64_KiB);
}

TEST_CASE("a slab's memory comes and goes in granules; its budget is charged for all of it", "[memory][hbm]") {
  const device on{{.memory_bytes = 1_MiB, .name = "device"}};
  const auto in_use = [&] { return 1_MiB - on.memory().free_bytes; };
  {
    const hbm memory{on, {.budget = 512_KiB, .granule_bytes = 20_KiB}};
    auto slab = memory.make_slab();
    CHECK(slab.properties().grows);
    CHECK_FALSE(slab.properties().lazy);  // a tier has all of it
    CHECK(memory.free_bytes() == 0);
    slab.commit(1);
    CHECK(in_use() == 32_KiB);
    slab.commit(32_KiB + 1);
    CHECK(in_use() == 64_KiB);
    slab.shrink(32_KiB);
    CHECK(in_use() == 32_KiB);
    slab.shrink(1);
    CHECK(in_use() == 32_KiB);
    slab.commit(512_KiB);
    CHECK(in_use() == 512_KiB);
    CHECK(memory.free_bytes() == 0);
    CHECK(memory.notes().empty());
    CHECK(vtier::test::in_child([&] { slab.shrink(512_KiB + 1); }).asserted("to more than it holds"));
  }
  CHECK(in_use() == 0);
  {
    auto slab = hbm{on, {.budget = 512_KiB, .grows = false}}.make_slab();
    CHECK_FALSE(slab.properties().grows);
    CHECK(in_use() == 512_KiB);
    slab.shrink(0);  // a block goes whole or not at all
    CHECK(in_use() == 512_KiB);
  }
  CHECK(in_use() == 0);
}

TEST_CASE("large slabs grow by a 1024th of themselves", "[memory][hbm]") {
  const device on{{.memory_bytes = 1_GiB, .name = "device"}};
  auto slab = hbm{on, {.budget = 96_MiB}}.make_slab();
  slab.commit(1);
  CHECK(on.memory().free_bytes == 1_GiB - 128_KiB);
}

TEST_CASE("a device without memory that grows has slabs all at once, and a note says so once", "[memory][hbm]") {
  const vtier::test::faulty_device on;
  const std::size_t free_before = on.memory().free_bytes;
  const vtier::hbm memory{on, {.budget = 1_MiB, .name = "gpu"}};
  for (int again = 0; again < 2; ++again) {
    auto slab = memory.make_slab();
    CHECK_FALSE(slab.properties().grows);
    CHECK(on.memory().free_bytes == free_before - 1_MiB);
    slab.commit(1_MiB);
    slab.shrink(0);
    CHECK(on.memory().free_bytes == free_before - 1_MiB);
  }
  REQUIRE(memory.notes().size() == 1);
  CHECK(memory.notes()[0].find("gpu: its device has no memory that grows") == 0);
}

TEST_CASE("several ranges share one budget until the last of them is gone", "[memory][hbm]") {
  const device on{{.memory_bytes = 1_MiB, .name = "device"}};
  const hbm memory{on, {.budget = 512_KiB, .granule_bytes = 64_KiB}};
  CHECK(memory.grows());
  auto slabs = memory.make_slabs(3);
  REQUIRE(slabs.size() == 3);
  CHECK(memory.free_bytes() == 0);
  CHECK_FALSE(memory.grows());  // nothing is left
  CHECK(on.memory().free_bytes == 1_MiB);
  for (const auto& s : slabs) {
    CHECK(s.size_bytes() == 512_KiB);
    CHECK(s.properties().grows);
    CHECK(s.properties().granule_bytes == 64_KiB);
  }
  slabs[0].commit(100_KiB);
  slabs[2].commit(300_KiB);
  CHECK(on.memory().free_bytes == 1_MiB - 128_KiB - 320_KiB);
  slabs[2].shrink(0);
  slabs[1].commit(384_KiB);
  CHECK(on.memory().free_bytes == 512_KiB);
  slabs.pop_back();
  slabs.pop_back();
  CHECK(on.memory().free_bytes == 1_MiB - 128_KiB);
  CHECK(memory.free_bytes() == 0);
  slabs.clear();
  CHECK(on.memory().free_bytes == 1_MiB);
  CHECK(memory.free_bytes() == 512_KiB);

  const hbm at_once{on, {.budget = 512_KiB, .grows = false}};
  CHECK_FALSE(at_once.grows());
  CHECK(at_once.make_slabs(3).size() == 1);
  CHECK(at_once.free_bytes() == 512_KiB);
  CHECK(at_once.notes().empty());  // it was asked not to grow
}

TEST_CASE("a pool over hbm takes memory as it needs it", "[memory][hbm]") {
  const device on{{.memory_bytes = 1_MiB, .name = "device"}};
  const vtier::pool pool{hbm{on, {.budget = 1_MiB, .granule_bytes = 64_KiB}}, {.growth_bytes = 256}};
  CHECK(on.memory().free_bytes == 1_MiB);
  void* const a = pool.allocate(1, 256);
  CHECK(on.memory().free_bytes == 1_MiB - 64_KiB);
  void* const b = pool.allocate(100_KiB, 256);
  CHECK(on.memory().free_bytes == 1_MiB - 128_KiB);
  void* const other = on.allocate(896_KiB);
  CHECK_THROWS_AS(pool.allocate(100_KiB, 256), vtier::out_of_memory);  // the budget has it, the device has not
  CHECK(pool.used_bytes() == 100_KiB + 256);
  on.deallocate(other, 896_KiB);
  void* const c = pool.allocate(100_KiB, 256);
  pool.deallocate(a, 1, 256);
  pool.deallocate(b, 100_KiB, 256);
  pool.deallocate(c, 100_KiB, 256);
}

TEST_CASE("a slab of a budget that is no multiple of 256 leaves the end unused", "[memory][hbm]") {
  const device on;
  const hbm memory{on, {.budget = 1'000}};
  {
    const auto slab = memory.make_slab();
    CHECK(slab.size_bytes() == 768);
    CHECK(memory.free_bytes() == 232);
    CHECK_THROWS_AS(memory.make_slab(), vtier::usage_error);
  }
  CHECK(memory.free_bytes() == 1'000);
  CHECK_THROWS_AS((hbm{on, {.budget = 255}}.make_slab()), vtier::usage_error);
}
