// SPDX-License-Identifier: Apache-2.0
// The simulated device: the contract, and that it reports every misuse that a real one would punish some day.

#include <vtier/device/sim.hpp>

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "contract/device.hpp"
#include "support/catch.hpp"
#include "support/death.hpp"

#include <vtier/core/bytes.hpp>
#include <vtier/core/error.hpp>

namespace {

using namespace vtier::literals;
using vtier::copy_direction;
using vtier::sim::device;
using vtier::sim::device_options;
using vtier::sim::fault;
using vtier::sim::world;
using vtier::sim::world_options;

/// A world, and a device in it.
struct scene {
  explicit scene(std::uint64_t seed = 1, std::size_t memory = 64_KiB, bool logs = false)
      : machine{std::make_shared<world>(world_options{.seed = seed, .logs = logs})},
        on{machine, named(memory, "gpu")} {}

  static device_options named(std::size_t memory, const char* name) {
    device_options o;
    o.memory_bytes = memory;
    o.name = name;
    return o;
  }

  [[nodiscard]] std::string said() const {
    std::string all;
    for (const auto& v : machine->violations()) all += v + "\n";
    return all;
  }
  [[nodiscard]] bool says(const std::string& part) const { return said().find(part) != std::string::npos; }

  std::shared_ptr<world> machine;
  device on;
};

}  // namespace

TEST_CASE("simulated device: the contract") {
  const scene s{1, 64_MiB};
  contract::device_contract_without_gates(s.on);
  CHECK(s.said() == "");
}

TEST_CASE("simulated device: without the right events, every pair of uses but two reads is a race") {
  // What the second stream does to the bytes that the first has just used.
  for (const bool first_writes : {true, false}) {
    for (const bool second_writes : {true, false}) {
      for (const bool joined : {true, false}) {
        for (std::uint64_t seed = 1; seed <= 20; ++seed) {
          scene s{seed};
          {
            const contract::device_bytes<device> bytes{s.on, 4096};
            const contract::host_bytes<device> a{s.on, 4096};
            const contract::host_bytes<device> b{s.on, 4096};
            const auto one = s.on.make_stream();
            const auto two = s.on.make_stream();
            s.on.fill(one, bytes.data(), std::byte{1}, 4096);
            s.on.synchronize(one);
            const auto use = [&](const vtier::sim::stream& stream, bool writes, const auto& host) {
              if (writes) {
                s.on.copy(stream, bytes.data() + 1000, host.data(), 1000, copy_direction::host_to_device);
              } else {
                s.on.copy(stream, host.data(), bytes.data() + 1000, 1000, copy_direction::device_to_host);
              }
            };
            use(one, first_writes, a);
            if (joined) s.on.wait(two, s.on.record(one));
            use(two, second_writes, b);
            s.on.synchronize(one);
            s.on.synchronize(two);
          }
          const bool race = (first_writes || second_writes) && !joined;
          CAPTURE(first_writes, second_writes, joined, seed, s.said());
          REQUIRE(s.says("a race") == race);
          if (!race) continue;
          REQUIRE(s.says("sim.test.cpp:"));
          REQUIRE(s.says("seed " + std::to_string(seed) + ","));
        }
      }
    }
  }
}

TEST_CASE("simulated device: the host must have been told before it uses bytes") {
  scene s;
  const contract::host_bytes<device> host{s.on, 4096};
  const contract::device_bytes<device> bytes{s.on, 4096};
  const auto one = s.on.make_stream();
  s.on.copy(one, bytes.data(), host.data(), 4096, copy_direction::host_to_device);
  const auto copied = s.on.record(one);
  s.machine->pass(1'000'000'000);  // long over, but nobody has asked
  s.machine->reads(host.data(), 4096);
  CHECK(s.said() == "");  // both read
  s.machine->writes(host.data(), 4096);
  CHECK(s.says("a race"));
  scene t;
  const contract::host_bytes<device> other{t.on, 4096};
  const contract::device_bytes<device> there{t.on, 4096};
  const auto two = t.on.make_stream();
  t.on.copy(two, there.data(), other.data(), 4096, copy_direction::host_to_device);
  const auto told = t.on.record(two);
  while (!t.on.passed(told)) t.on.pause(1000);
  t.machine->writes(other.data(), 4096);
  CHECK(t.said() == "");
}

TEST_CASE("simulated device: launched functions reach device memory, the host does not") {
  scene s;
  auto* const p = static_cast<int*>(s.on.allocate(4096));
  const auto one = s.on.make_stream();
  int seen = 0;
  s.on.launch(one, [p] { p[10] = 7; });
  s.on.launch(one, [p, &seen] { seen = p[10]; });
  s.on.synchronize(one);
  CHECK(seen == 7);
  int reached = 0;
  std::memcpy(&reached, s.on.reach(p + 10), sizeof reached);
  CHECK(reached == 7);
  const auto died = vtier::test::in_child([p] { return *static_cast<volatile int*>(p) == 0; });
  CHECK(died.signal == SIGSEGV);
  s.on.deallocate(p, 4096);
}

TEST_CASE("simulated device: what a launched function may not do") {
  scene s;
  const auto one = s.on.make_stream();
  s.on.launch(one, [&] { static_cast<void>(s.on.record(one)); });
  s.on.synchronize(one);
  CHECK(s.says("a launched function called gpu"));
}

TEST_CASE("simulated device: memory that is freed, too short, of another size") {
  scene s;
  const auto one = s.on.make_stream();
  auto* const p = static_cast<std::byte*>(s.on.allocate(1024));
  s.on.fill(one, p, std::byte{1}, 1024);
  s.on.deallocate(p, 1024);  // without waiting
  CHECK(s.says("a race"));
  s.on.fill(one, p, std::byte{2}, 1024);
  s.on.synchronize(one);
  CHECK(s.says("freed memory"));
  scene t;
  const auto two = t.on.make_stream();
  auto* const q = static_cast<std::byte*>(t.on.allocate(1024));
  t.on.fill(two, q, std::byte{1}, 1025);
  t.on.synchronize(two);
  CHECK(t.says("beyond the end"));
  t.on.deallocate(q, 1000);
  CHECK(t.says("another size"));
}

TEST_CASE("simulated device: freed bytes are spoiled, and a block is used again") {
  scene s{1, 4096};
  const auto one = s.on.make_stream();
  void* const p = s.on.allocate(one, 4096);
  s.on.fill(one, p, std::byte{1}, 4096);
  s.on.deallocate(one, p, 4096);
  s.on.synchronize(one);
  CHECK(*s.on.reach(p) == std::byte{0xDB});
  const auto two = s.on.make_stream();
  void* const q = s.on.allocate(two, 4096);
  CHECK(q == p);
  s.on.fill(two, q, std::byte{2}, 4096);
  s.on.deallocate(two, q, 4096);
  s.on.synchronize(two);
  CHECK(s.said() == "");
}

TEST_CASE("simulated device: streams and events belong to one device") {
  scene s;
  const device other{s.machine, scene::named(4096, "other")};
  const auto ours = s.on.make_stream();
  const auto theirs = other.make_stream();
  s.on.wait(ours, other.record(theirs));
  CHECK(s.says("an event of another device"));
  static_cast<void>(s.on.record(theirs));
  CHECK(s.says("in a stream of another device"));
  CHECK_FALSE(s.on == other);
}

TEST_CASE("simulated device: what is left over is told") {
  auto s = std::make_unique<scene>();
  const auto machine = s->machine;
  static_cast<void>(s->on.allocate(1024));
  void* const host = s->on.allocate_host(4096);
  auto stream = std::make_unique<vtier::sim::stream>(s->on.make_stream());
  const auto event = s->on.record(*stream);
  s = nullptr;
  machine->finish();
  std::string all;
  for (const auto& v : machine->violations()) all += v;
  for (const char* part :
       {"1024 bytes of memory of gpu", "4096 bytes of host memory of gpu", "1 events", "1 streams"}) {
    CAPTURE(part, all);
    CHECK(all.find(part) != std::string::npos);
  }
  ::operator delete(host, std::align_val_t{4096});  // nobody else will
}

TEST_CASE("simulated device: waiting for what never passes is an error, not a hang") {
  scene s;
  const auto one = s.on.make_stream();
  const auto two = s.on.make_stream();
  // Two streams that wait for each other cannot be had by events that are recorded once; a lost one can.
  std::optional<vtier::sim::event> lost;
  s.on.launch(one, [&] { lost.reset(); });
  s.on.synchronize(one);
  CHECK(s.on.passed(vtier::sim::event{}));
  vtier::sim::work never;
  never.after = s.machine->make_mark(0);
  const auto lane = s.machine->make_lane("stuck");
  never.done = s.machine->make_mark(0);
  s.machine->submit(*lane, std::move(never), "never", {});
  CHECK_FALSE(s.machine->run_until([] { return false; }));
}

TEST_CASE("simulated device: each kind of fault strikes where it should") {
  scene s;
  const auto one = s.on.make_stream();
  const contract::device_bytes<device> bytes{s.on, 256};
  const contract::host_bytes<device> host{s.on, 256};
  const auto event = s.on.record(one);
  const auto once = [&](fault what, const std::function<void()>& call) {
    CAPTURE(vtier::sim::name(what));
    s.machine->fail_at(what, 1);
    CHECK_THROWS_AS(call(), vtier::device_error);
    CHECK_NOTHROW(call());
  };
  once(fault::stream, [&] { static_cast<void>(s.on.make_stream()); });
  once(fault::record, [&] { static_cast<void>(s.on.record(one)); });
  once(fault::wait, [&] { s.on.wait(one, event); });
  once(fault::query, [&] { static_cast<void>(s.on.passed(event)); });
  once(fault::copy, [&] { s.on.copy(one, bytes.data(), host.data(), 256, copy_direction::host_to_device); });
  once(fault::copy, [&] { s.on.fill(one, bytes.data(), std::byte{}, 256); });
  once(fault::launch, [&] { s.on.launch(one, [] {}); });
  s.machine->fail_at(fault::device_memory, 1);
  CHECK_THROWS_AS(s.on.allocate(256), vtier::out_of_memory);
  s.machine->fail_at(fault::host_memory, 1);
  CHECK_THROWS_AS(s.on.allocate_host(256), vtier::out_of_memory);
  s.machine->fail_at(fault::registration, 1);
  CHECK_FALSE(s.on.register_host(host.data(), 256));
  CHECK(s.on.register_host(host.data(), 256));
  s.on.synchronize(one);
  CHECK(s.said() == "");
}

TEST_CASE("simulated device: a stream that ends loses no work") {
  scene s;
  int ran = 0;
  {
    const auto one = s.on.make_stream();
    for (int i = 0; i < 10; ++i) s.on.launch(one, [&] { ++ran; });
  }
  s.machine->finish();
  CHECK(ran == 10);
  CHECK(s.said() == "");
}

TEST_CASE("simulated device: the seed chooses the order, and the same seed the same") {
  const auto order = [](std::uint64_t seed) {
    scene s{seed, 4096, true};
    std::vector<int> ran;
    std::vector<vtier::sim::stream> streams;
    for (int i = 0; i < 6; ++i) {
      streams.push_back(s.on.make_stream());
      s.on.launch(streams.back(), [&ran, i] { ran.push_back(i); });
    }
    for (const auto& stream : streams) s.on.synchronize(stream);
    CHECK(s.said() == "");
    return std::pair{ran, s.machine->events()};
  };
  std::set<std::vector<int>> orders;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    const auto once = order(seed);
    CHECK(once == order(seed));
    orders.insert(once.first);
  }
  CHECK(orders.size() > 60);
}
