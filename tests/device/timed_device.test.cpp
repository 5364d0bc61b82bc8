// SPDX-License-Identifier: Apache-2.0
// Events that know when they passed, on each device of the host.

#include <vtier/device/timed_device.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/faulty_device.hpp"

#include <vtier/core/simulation.hpp>
#include <vtier/device/host.hpp>
#include <vtier/device/sim.hpp>

namespace {

static_assert(vtier::timed_device<vtier::host::device>);
static_assert(vtier::timed_device<vtier::sim::device>);
static_assert(!vtier::timed_device<vtier::test::faulty_device>);

vtier::sim::device in_time(std::shared_ptr<vtier::sim::world>& world) {
  vtier::sim::world_options o;
  o.disorder = 0.0;
  world = std::make_shared<vtier::sim::world>(o);
  vtier::sim::device_options d;
  d.copy_bytes_per_ns = 1.0;
  d.latency_ns = 100.0;
  return vtier::sim::device{world, d};
}

}  // namespace

TEST_CASE("the time between two events is that of the work between them", "[timed_device]") {
  std::shared_ptr<vtier::sim::world> world;
  const auto gpu = in_time(world);
  const auto s = gpu.make_stream();
  std::vector<std::byte> host(5000);
  void* const block = gpu.allocate(5000);
  const auto before = gpu.record_timed(s);
  gpu.copy(s, block, host.data(), 5000, vtier::copy_direction::host_to_device);
  const auto after = gpu.record_timed(s);
  gpu.synchronize(s);
  CHECK(gpu.elapsed_ns(before, after) >= 5100);
  CHECK(gpu.elapsed_ns(before, after) < 10'000);
  CHECK(gpu.elapsed_ns(after, before) == -gpu.elapsed_ns(before, after));
  gpu.deallocate(block, 5000);
}

TEST_CASE("events of two streams have one clock", "[timed_device]") {
  const vtier::host::device cpu;
  const auto a = cpu.make_stream();
  const auto b = cpu.make_stream();
  const auto first = cpu.record_timed(a);
  cpu.launch(a, [] { std::this_thread::sleep_for(std::chrono::milliseconds{2}); });
  const auto middle = cpu.record_timed(a);
  cpu.wait(b, middle);
  const auto last = cpu.record_timed(b);
  cpu.synchronize(last);
  CHECK(cpu.elapsed_ns(first, middle) >= 2'000'000);
  CHECK(cpu.elapsed_ns(middle, last) >= 0);
  CHECK(cpu.elapsed_ns(first, last) == cpu.elapsed_ns(first, middle) + cpu.elapsed_ns(middle, last));
}

TEST_CASE("a device that cannot time its events records them all the same", "[timed_device]") {
  const vtier::test::faulty_device broken;
  const auto s = broken.make_stream();
  const auto e = vtier::record(broken, s, true);
  broken.synchronize(e);
  CHECK(broken.passed(e));
  const vtier::host::device cpu;
  const auto t = cpu.make_stream();
  const auto first = vtier::record(cpu, t, true);
  const auto last = vtier::record(cpu, t, true);
  cpu.synchronize(last);
  CHECK(cpu.elapsed_ns(first, last) >= 0);
}

TEST_CASE("the time of an event that has not passed is a programmer's error", "[timed_device]") {
  std::shared_ptr<vtier::sim::world> world;
  const auto gpu = in_time(world);
  const auto s = gpu.make_stream();
  gpu.launch(s, [] {});
  const auto late = gpu.record_timed(s);
  CHECK(vtier::test::in_child([&] { static_cast<void>(gpu.elapsed_ns(late, late)); }).asserted("have not passed"));
  gpu.synchronize(s);
}
