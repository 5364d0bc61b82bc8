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
#include <vtier/core/random_source.hpp>

namespace {

using namespace std::string_literals;
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

TEST_CASE("simulated device: a race is told with both its call sites, what each did, and the seed") {
  scene s{77};
  const contract::host_bytes<device> host{s.on, 4096};
  const contract::device_bytes<device> bytes{s.on, 4096};
  const auto one = s.on.make_stream();
  const auto two = s.on.make_stream();
  s.machine->label("the upper half");
  const int first = __LINE__ + 1;
  s.on.copy(one, bytes.data() + 2048, host.data(), 2048, copy_direction::host_to_device);
  s.machine->label("one byte of it");
  const int second = __LINE__ + 1;
  s.on.fill(two, bytes.data() + 4095, std::byte{1}, 1);
  s.on.synchronize(one);
  s.on.synchronize(two);
  REQUIRE(s.machine->violations().size() == 1);
  const std::string text = s.machine->violations().front();
  CAPTURE(text);
  for (const std::string& part :
       {"seed 77,"s, "the write by"s, "copy up on gpu stream 1 (sim.test.cpp:" + std::to_string(first) + ")",
        "fill on gpu stream 2 (sim.test.cpp:" + std::to_string(second) + ")", "in \"the upper half\""s,
        "in \"one byte of it\""s}) {
    CAPTURE(part);
    CHECK(text.find(part) != std::string::npos);
  }
}

namespace {

// A random program over a few streams and blocks, in which every use waits for those before it that it must follow, or
// never waits. Gives the number of blocks that do not have at the end what the calls, taken in turn, say.
std::size_t run_program(const scene& s, std::uint64_t seed, bool waits) {
  constexpr std::size_t size = 512;
  const device& on = s.on;
  vtier::random_source decide{seed};
  std::vector<vtier::sim::stream> streams;
  for (int i = 0; i < 3; ++i) streams.push_back(on.make_stream());
  struct block {
    std::byte* at;
    bool of_host;
    std::vector<vtier::sim::event> uses{};  // since the last write, that included
    vtier::sim::event written{};
    std::byte expected{};
  };
  std::vector<block> blocks;
  for (int i = 0; i < 6; ++i) {
    const bool of_host = i >= 4;
    blocks.push_back({static_cast<std::byte*>(of_host ? on.allocate_host(size) : on.allocate(size)), of_host});
  }
  const auto reads = [&](const vtier::sim::stream& stream, block& b) {
    if (waits) on.wait(stream, b.written);
  };
  const auto writes = [&](const vtier::sim::stream& stream, block& b) {
    if (!waits) return;
    for (const auto& e : b.uses) on.wait(stream, e);
  };
  const auto has_written = [](block& b, const vtier::sim::event& e, std::byte what) {
    b.written = e;
    b.uses = {e};
    b.expected = what;
  };
  for (auto& b : blocks) {
    const auto& stream = streams[decide.below(3)];
    on.fill(stream, b.at, std::byte{}, size);
    has_written(b, on.record(stream), std::byte{});
  }
  for (int step = 0; step < 40; ++step) {
    const auto& stream = streams[decide.below(3)];
    block& to = blocks[decide.below(blocks.size())];
    block& from = blocks[decide.below(blocks.size())];
    writes(stream, to);
    const auto what = decide.below(3);
    if (what == 0) {
      const auto value = static_cast<std::byte>(decide.below(256));
      on.fill(stream, to.at, value, size);
      has_written(to, on.record(stream), value);
    } else if (what == 1) {
      on.launch(stream, [&machine = *s.machine, at = to.at] {
        machine.reads(at, size);
        machine.writes(at, size);
        for (std::size_t i = 0; i < size; ++i) at[i] = static_cast<std::byte>(std::to_integer<unsigned>(at[i]) + 1U);
      });
      has_written(to, on.record(stream), static_cast<std::byte>(std::to_integer<unsigned>(to.expected) + 1U));
    } else if (&to != &from) {
      reads(stream, from);
      on.copy(stream, to.at, from.at, size,
              to.of_host ? (from.of_host ? copy_direction::host_to_host : copy_direction::device_to_host)
                         : (from.of_host ? copy_direction::host_to_device : copy_direction::device_to_device));
      const auto e = on.record(stream);
      from.uses.push_back(e);
      has_written(to, e, from.expected);
    }
  }
  for (const auto& stream : streams) on.synchronize(stream);
  std::size_t wrong = 0;
  for (const auto& b : blocks) {
    const std::byte* const there = on.reach(b.at);
    wrong += std::all_of(there, there + size, [&](std::byte x) { return x == b.expected; }) ? 0U : 1U;
    if (b.of_host) {
      on.deallocate_host(b.at, size);
    } else {
      on.deallocate(b.at, size);
    }
  }
  return wrong;
}

}  // namespace

TEST_CASE("simulated device: correct programs break no rule in any order, and without their waits they do") {
  std::size_t noticed = 0;
  std::size_t wrong_bytes = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    std::shared_ptr<world> machine;
    {
      const scene s{seed};
      machine = s.machine;
      CAPTURE(seed, s.said());
      REQUIRE(run_program(s, seed, true) == 0);
    }
    machine->finish();
    CAPTURE(seed);
    REQUIRE(machine->violations() == std::vector<std::string>{});
    const scene t{seed};
    wrong_bytes += run_program(t, seed, false) > 0 ? 1U : 0U;
    noticed += t.says("a race") ? 1U : 0U;
  }
  CHECK(noticed == 200);    // in every order
  CHECK(wrong_bytes > 20);  // ... also where the bytes came out right: some did
  CHECK(wrong_bytes < 200);
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

TEST_CASE("simulated device: a computation takes the time it is given, in its turn, and finds bytes by reach()") {
  const auto machine = std::make_shared<world>(world_options{.disorder = 0.0});
  const device on{machine, scene::named(64_KiB, "gpu")};
  auto* const p = static_cast<int*>(on.allocate(4096));
  {
    const auto one = on.make_stream();
    const std::int64_t began = machine->now_ns();
    int seen = 0;
    std::int64_t first = 0;
    const auto put = [&](int value) {
      machine->writes(p, 4096);
      std::memcpy(on.reach(p), &value, sizeof value);
    };
    on.compute(one, 1e6, [&] {
      first = machine->now_ns() - began;
      put(7);
    });
    on.compute(one, 2e6, [&] { std::memcpy(&seen, on.reach(p), sizeof seen); });
    CHECK(seen == 0);
    on.synchronize(one);
    CHECK(seen == 7);
    CHECK(first >= 1'000'000);
    CHECK(first < 1'010'000);
    CHECK(machine->now_ns() - began >= 3'000'000);
    CHECK(machine->now_ns() - began < 3'020'000);
    CHECK_THROWS_AS(on.compute(one, 1.0, nullptr), vtier::usage_error);
    const auto died = vtier::test::in_child([&] {
      on.compute(one, 1.0, [p] { *static_cast<volatile int*>(p) = 1; });
      on.synchronize(one);
      return true;
    });
    CHECK(died.signal == SIGSEGV);
    on.compute(one, 1.0, [] { throw std::runtime_error("a kernel failed"); });
    CHECK_THROWS_AS(on.synchronize(one), vtier::device_error);
  }
  on.deallocate(p, 4096);
  CHECK(machine->violations().empty());
}

TEST_CASE("simulated device: a launched function may call nothing of the device") {
  struct place {
    scene s;
    const device& on = s.on;
    vtier::sim::stream one = on.make_stream();
    vtier::sim::stream two = on.make_stream();
    vtier::sim::event event = on.record(two);
    void* block = on.allocate(256);
    void* host = on.allocate_host(4096);
  };
  const std::vector<std::function<void(place&)>> calls{
      [](place& p) { static_cast<void>(p.on.make_stream()); },
      [](place& p) { static_cast<void>(p.on.record(p.two)); },
      [](place& p) { p.on.wait(p.two, p.event); },
      [](place& p) { static_cast<void>(p.on.passed(p.event)); },
      [](place& p) { p.on.synchronize(p.event); },
      [](place& p) { p.on.synchronize(p.two); },
      [](place& p) { p.on.copy(p.two, p.block, p.host, 256, copy_direction::host_to_device); },
      [](place& p) { p.on.fill(p.two, p.block, std::byte{1}, 256); },
      [](place& p) { p.on.launch(p.two, [] {}); },
      [](place& p) { p.on.deallocate(p.on.allocate(256), 256); },
      [](place& p) { p.on.deallocate(p.two, p.on.allocate(p.two, 256), 256); },
      [](place& p) { static_cast<void>(p.on.register_host(p.host, 4096)); },
      [](place& p) { p.on.unregister_host(p.host); },
      [](place& p) { p.on.deallocate_host(p.on.allocate_host(4096), 4096); },
      [](place& p) { static_cast<void>(p.on.memory()); },
      [](place& p) { p.on.pause(1000); },
  };
  for (std::size_t i = 0; i < calls.size(); ++i) {
    CAPTURE(i);
    place p;
    p.on.launch(p.one, [&] { calls[i](p); });
    p.on.synchronize(p.one);
    p.on.synchronize(p.two);
    CHECK(p.s.says("a launched function called gpu"));
    p.on.deallocate(p.block, 256);
    p.on.deallocate_host(p.host, 4096);
  }
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

TEST_CASE("simulated device: addresses that were never allocated, freed twice, or another device's") {
  scene s;
  const auto one = s.on.make_stream();
  auto* const p = static_cast<std::byte*>(s.on.allocate(1024));
  const contract::host_bytes<device> host{s.on, 256};
  s.on.fill(one, p + 1024, std::byte{1}, 256);  // begins where the block ends
  s.on.synchronize(one);
  CHECK(s.says("not allocated"));
  s.on.copy(one, host.data(), p + 8192, 256, copy_direction::device_to_host);
  s.on.synchronize(one);
  CHECK(s.machine->violations().size() == 2);
  const std::size_t free = s.on.memory().free_bytes;
  s.on.deallocate(p, 1024);
  CHECK(s.machine->violations().size() == 2);
  s.on.deallocate(p, 1024);
  CHECK(s.says("memory was freed that is not allocated"));
  CHECK(s.on.memory().free_bytes == free + 1024);  // and counted once
  auto* const q = static_cast<std::byte*>(s.on.allocate(1024));
  const device other{s.machine, scene::named(4096, "other")};
  other.deallocate(q, 1024);
  CHECK(s.says("not its own"));
  s.on.deallocate(one, q, 512);  // all of it goes, and it is told
  s.on.synchronize(one);
  CHECK(s.says("another size"));
  CHECK(s.on.memory().free_bytes == s.on.memory().total_bytes);
  std::vector<std::byte> foreign(64);
  s.on.deallocate_host(foreign.data(), foreign.size());
  CHECK(s.machine->violations().back().find("not allocated") != std::string::npos);
}

TEST_CASE("simulated device: memory asked for in a stream that is gone is not taken") {
  scene s;
  const std::size_t free = s.on.memory().free_bytes;
  auto one = std::make_unique<vtier::sim::stream>(s.on.make_stream());
  const vtier::sim::stream_ref name = *one;
  one = nullptr;
  CHECK_THROWS_AS(s.on.allocate(name, 1024), vtier::usage_error);
  CHECK(s.on.memory().free_bytes == free);
  s.machine->finish();
  CHECK(s.said() == "");
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
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { static_cast<void>(s.on.passed(other.record(theirs))); },
           [&] { s.on.synchronize(other.record(theirs)); },
       }) {
    const std::size_t before = s.machine->violations().size();
    call();
    REQUIRE(s.machine->violations().size() == before + 1);
    CHECK(s.machine->violations().back().find("an event of another device") != std::string::npos);
  }
  auto* const bytes = static_cast<std::byte*>(s.on.allocate(256));
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { static_cast<void>(s.on.record(theirs)); },
           [&] { s.on.wait(theirs, s.on.record(ours)); },
           [&] { s.on.synchronize(theirs); },
           [&] { s.on.fill(theirs, bytes, std::byte{}, 256); },
           [&] { s.on.copy(theirs, bytes, bytes + 128, 128, copy_direction::device_to_device); },
           [&] { s.on.launch(theirs, [] {}); },
           [&] { s.on.deallocate(theirs, bytes, 256); },
       }) {
    const std::size_t before = s.machine->violations().size();
    call();
    REQUIRE(s.machine->violations().size() == before + 1);
    CHECK(s.machine->violations().back().find("in a stream of another device") != std::string::npos);
  }
  other.synchronize(theirs);
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
  ::operator delete (host, std::align_val_t{4096});  // nobody else will
}

TEST_CASE("simulated device: waiting for what never passes is an error, not a hang") {
  // Events are recorded once, so streams of one world cannot wait for each other; what another world has to do is done
  // only there, and this one cannot let it pass.
  const scene elsewhere;
  const auto far = elsewhere.on.make_stream();
  const auto never = elsewhere.on.record(far);
  scene s;
  const auto one = s.on.make_stream();
  const auto two = s.on.make_stream();
  int ran = 0;
  const auto told = [&](const std::function<void()>& call) {
    const std::size_t before = s.machine->violations().size();
    CHECK_THROWS_AS(call(), vtier::device_error);
    REQUIRE(s.machine->violations().size() == before + 1);
    CHECK(s.machine->violations().back().find("an event that never passes") != std::string::npos);
  };
  told([&] { s.on.synchronize(never); });
  s.on.wait(one, never);
  s.on.launch(one, [&] { ++ran; });
  const auto behind = s.on.record(one);
  told([&] { s.on.synchronize(behind); });
  told([&] { s.on.synchronize(one); });
  CHECK(ran == 0);
  s.on.launch(two, [&] { ++ran; });
  s.on.synchronize(two);  // other streams go on
  CHECK(ran == 1);
  s.machine->finish();
  CHECK(s.says("work is left in gpu stream 1"));
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
  for (std::size_t i = 0; i < vtier::sim::fault_count; ++i) {
    const auto what = static_cast<fault>(i);
    CAPTURE(vtier::sim::name(what));
    const std::string kind = vtier::sim::name(what);
    const bool of_drives = kind.starts_with("file_") || kind == "reservation";
    CHECK((s.machine->occasions(what) > 0) != of_drives);  // or one is not tried above
  }
  CHECK(s.said() == "");
}

TEST_CASE("simulated device: a launched function that throws leaves the device as any other does") {
  scene s;
  auto* const p = static_cast<int*>(s.on.allocate(256));
  const auto one = s.on.make_stream();
  s.on.launch(one, [p] {
    *p = 1;
    throw std::runtime_error("half-way");
  });
  s.on.launch(one, [p] { *p += 1; });
  CHECK_THROWS_AS(s.on.synchronize(one), vtier::device_error);
  s.on.synchronize(one);  // told once
  int reached = 0;
  std::memcpy(&reached, s.on.reach(p), sizeof reached);
  CHECK(reached == 2);
  CHECK(vtier::test::in_child([p] { return *static_cast<volatile int*>(p) == 0; }).signal == SIGSEGV);
  s.on.deallocate(p, 256);
  CHECK(s.said() == "");
}

TEST_CASE("simulated device: work that is queued runs before the device goes") {
  const auto machine = std::make_shared<world>(1);
  std::vector<std::byte> host(4096, std::byte{7});
  int ran = 0;
  {
    const device on{machine, scene::named(4096, "gpu")};
    const auto one = on.make_stream();
    void* const block = on.allocate(one, 4096);
    on.copy(one, block, host.data(), 4096, copy_direction::host_to_device);
    on.fill(one, block, std::byte{9}, 2048);
    on.copy(one, host.data(), block, 4096, copy_direction::device_to_host);
    on.launch(one, [&] { ++ran; });
    on.deallocate(one, block, 4096);
  }
  CHECK(ran == 1);
  CHECK(std::count(host.begin(), host.end(), std::byte{9}) == 2048);
  CHECK(std::count(host.begin(), host.end(), std::byte{7}) == 2048);
  machine->finish();
  CHECK(machine->violations() == std::vector<std::string>{});
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
