// SPDX-License-Identifier: Apache-2.0
// The host as a device: the contract, and what is its own: a limit on memory, a bounded queue, streams that end.

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "contract/device.hpp"
#include "support/catch.hpp"
#include "support/death.hpp"

#include <vtier/core/bytes.hpp>
#include <vtier/core/error.hpp>
#include <vtier/device/device.hpp>
#include <vtier/device/host.hpp>

namespace {

using namespace vtier::literals;
using contract::gate;

vtier::host::device device_of(std::size_t memory_bytes) {
  return vtier::host::device{vtier::host::device_options{memory_bytes, "toy"}};
}

// Lives until after main, when no device handle is left; its queue is not empty then.
std::optional<vtier::host::stream> left_behind;
std::atomic<int> ran_after_main{0};

}  // namespace

TEST_CASE("host device: the contract") { contract::device_contract(vtier::host::device{}); }

TEST_CASE("host device: each construction is another device, of the machine's memory unless told otherwise") {
  const vtier::host::device a;
  const vtier::host::device b;
  CHECK_FALSE(a == b);
  CHECK(a.name() == "host");
  CHECK(a.bus_id().empty());
  CHECK(a.memory().total_bytes >= 64_MiB);
  CHECK(device_of(3_MiB).memory().total_bytes == 3_MiB);
  CHECK(device_of(3_MiB).name() == "toy");
}

TEST_CASE("host device: memory is limited, to the byte") {
  const auto on = device_of(1000);
  void* const a = on.allocate(600);
  CHECK(on.memory().free_bytes == 400);
  try {
    static_cast<void>(on.allocate(401));
    FAIL("nothing was thrown");
  } catch (const vtier::out_of_memory& e) {
    CHECK(e.tier() == "toy");
    CHECK(e.asked_bytes() == 401);
    CHECK(e.free_bytes() == 400);
  }
  void* const b = on.allocate(400);
  CHECK(on.memory().free_bytes == 0);
  on.deallocate(a, 600);
  on.deallocate(b, 400);
  CHECK(on.memory().free_bytes == 1000);
}

TEST_CASE("host device: what the system does not give is out of memory too, and is not charged") {
  const auto on = device_of(1'000'000_TiB);
  CHECK_THROWS_AS(on.allocate(900'000_TiB), vtier::out_of_memory);
  CHECK(on.memory().free_bytes == 1'000'000_TiB);
  CHECK_THROWS_AS(on.allocate_host(900'000_TiB), vtier::out_of_memory);
  CHECK_THROWS_AS(on.allocate_host(~std::size_t{0}), vtier::out_of_memory);
}

TEST_CASE("host device: host memory is not charged") {
  const auto on = device_of(1_MiB);
  void* const block = on.allocate_host(4_MiB);
  CHECK(on.memory().free_bytes == 1_MiB);
  on.deallocate_host(block, 4_MiB);
}

TEST_CASE("host device: a block waiting for its release makes room in stream order, and only so") {
  const auto on = device_of(4_MiB);
  const auto s = on.make_stream();
  const auto t = on.make_stream();
  void* const old_block = on.allocate(s, 4_MiB);
  on.fill(s, old_block, std::byte{1}, 4_MiB);
  const contract::bystander<vtier::host::device> others{vtier::host::device{}};
  const gate shut;
  shut.stop(on, s);
  on.deallocate(s, old_block, 4_MiB);
  CHECK(on.memory().free_bytes == 0);
  CHECK_THROWS_AS(on.allocate(1), vtier::out_of_memory);  // now is before the release
  // Another stream gets it, ordered behind the release.
  void* const new_block = on.allocate(t, 3_MiB);
  on.fill(t, new_block, std::byte{2}, 3_MiB);
  const auto filled = on.record(t);
  // The same bytes are not promised twice.
  CHECK_THROWS_AS(on.allocate(s, 2_MiB), vtier::out_of_memory);
  void* const third = on.allocate(s, 1_MiB);
  others.work();
  CHECK_FALSE(on.passed(filled));
  shut.open();
  on.synchronize(filled);
  on.synchronize(s);
  CHECK(on.memory().free_bytes == 0);
  on.deallocate(t, new_block, 3_MiB);
  on.deallocate(s, third, 1_MiB);
  on.synchronize(t);
  on.synchronize(s);
  CHECK(on.memory().free_bytes == 4_MiB);
  // A release that has happened makes no room a second time.
  void* const last = on.allocate(4_MiB);
  CHECK_THROWS_AS(on.allocate(s, 1), vtier::out_of_memory);
  on.deallocate(last, 4_MiB);
}

TEST_CASE("host device: streams trade a full memory from several threads without loss or deadlock") {
  const auto on = device_of(1_MiB);
  std::vector<std::thread> running;
  std::atomic<int> taken{0};
  for (int i = 0; i < 4; ++i) {
    running.emplace_back([&] {
      const auto s = on.make_stream();
      for (int k = 0; k < 300; ++k) {
        try {
          void* const block = on.allocate(s, 600_KiB);
          on.fill(s, block, std::byte{3}, 600_KiB);
          on.deallocate(s, block, 600_KiB);
          ++taken;
        } catch (const vtier::out_of_memory&) {
          std::this_thread::yield();  // somebody holds it between the two calls
        }
      }
    });
  }
  for (std::thread& r : running) r.join();
  CHECK(taken > 0);
  CHECK(on.memory().free_bytes == 1_MiB);
}

TEST_CASE("host device: destroying a stream runs what is left, also after the last device handle") {
  int ran = 0;
  {
    std::optional<vtier::host::device> on{std::in_place};
    std::optional<vtier::host::stream> s{on->make_stream()};
    const gate shut;
    shut.stop(*on, *s);
    for (int i = 0; i < 50; ++i) on->launch(*s, [&ran] { ++ran; });
    void* const block = on->allocate(*s, 3_MiB);
    on->fill(*s, block, std::byte{1}, 3_MiB);
    on->deallocate(*s, block, 3_MiB);
    on.reset();
    shut.open();
    s.reset();
    CHECK(ran == 50);
  }
}

TEST_CASE("host device: a name that outlives its stream") {
  const auto on = device_of(1_MiB);
  std::optional<vtier::host::stream> s{on.make_stream()};
  const vtier::host::stream_ref name = *s;
  void* const block = on.allocate(name, 4096);
  on.launch(name, [] { throw std::runtime_error("nobody asked"); });
  s.reset();
  const auto e = on.record(name);
  CHECK(on.passed(e));
  CHECK_THROWS_AS(on.synchronize(e), vtier::device_error);  // what nobody was told
  on.deallocate(name, block, 4096);
  CHECK(on.memory().free_bytes == 1_MiB);
  char byte = 0;
  CHECK_THROWS_AS(on.fill(name, &byte, std::byte{1}, 1), vtier::usage_error);
  CHECK_THROWS_AS(on.copy(name, &byte, "x", 1, vtier::copy_direction::host_to_host), vtier::usage_error);
  CHECK_THROWS_AS(on.launch(name, [] {}), vtier::usage_error);
}

TEST_CASE("host device: a stream that was moved from is refused, the one it moved to works") {
  const vtier::host::device on;
  auto a = on.make_stream();
  int ran = 0;
  on.launch(a, [&ran] { ++ran; });
  auto b = std::move(a);
  on.launch(b, [&ran] { ++ran; });
  CHECK_THROWS_AS(on.record(a), vtier::usage_error);  // NOLINT: that is the point
  CHECK(a.waited_ns() == 0);
  b = on.make_stream();  // runs what the old one had
  CHECK(ran == 2);
  on.synchronize(b);
}

TEST_CASE("host device: the first exception is the one that is told, to whoever asks first") {
  const vtier::host::device on;
  const auto s = on.make_stream();
  const auto before = on.record(s);
  on.launch(s, [] { throw std::runtime_error("cause"); });
  on.launch(s, [] { throw std::runtime_error("consequence"); });
  const auto after = on.record(s);
  on.synchronize(before);  // came before it
  try {
    on.synchronize(after);
    FAIL("nothing was thrown");
  } catch (const vtier::device_error& e) {
    CHECK(std::string{e.what()}.find("cause") != std::string::npos);
    CHECK(std::string{e.what()}.find("consequence") == std::string::npos);
  }
  on.synchronize(s);
  const auto other = on.make_stream();
  on.launch(other, [] { throw std::runtime_error("elsewhere"); });
  on.synchronize(s);  // another stream's
  CHECK_THROWS_AS(on.synchronize(other), vtier::device_error);
}

TEST_CASE("host device: where all has run, a mark has passed and still tells of an error") {
  const vtier::host::device on;
  const auto s = on.make_stream();
  CHECK(on.passed(on.record(s)));  // nothing was ever submitted
  std::atomic<int> ran{0};
  on.launch(s, [&ran] { ++ran; });
  on.launch(s, [&ran] {
    ++ran;
    throw std::runtime_error("cause");
  });
  const auto failed = on.record(s);
  while (!on.passed(failed)) std::this_thread::yield();
  CHECK(ran == 2);
  while (!on.passed(on.record(s))) std::this_thread::yield();  // until the thread has come to rest
  CHECK_THROWS_AS(on.synchronize(on.record(s)), vtier::device_error);
  on.synchronize(on.record(s));  // it was told
  on.synchronize(failed);
  on.launch(s, [&ran] { ++ran; });
  on.synchronize(s);
  CHECK(ran == 3);
}

TEST_CASE("host device: marks with nothing between them pass together, and none before what it stands behind") {
  const vtier::host::device on;
  const auto s = on.make_stream();
  const gate first;
  const gate second;
  first.stop(on, s);
  const auto a = on.record(s);
  const auto b = on.record(s);
  second.stop(on, s);
  const auto c = on.record(s);
  const auto timed = on.record_timed(s);
  const auto d = on.record(s);
  CHECK_FALSE(on.passed(a));
  CHECK_FALSE(on.passed(b));
  first.open();
  on.synchronize(a);
  on.synchronize(b);
  CHECK_FALSE(on.passed(c));
  CHECK_FALSE(on.passed(timed));
  CHECK_FALSE(on.passed(d));
  CHECK_FALSE(on.passed(on.record(s)));
  second.open();
  on.synchronize(d);
  CHECK(on.passed(c));
  CHECK(on.passed(timed));
}

TEST_CASE("host device: a stream says how long it has waited, also while it waits") {
  const vtier::host::device on;
  const auto s = on.make_stream();
  const auto t = on.make_stream();
  const gate shut;
  shut.stop(on, s);
  on.wait(t, on.record(s));
  const auto behind = on.record(t);
  while (t.waited_ns() == 0 && !on.passed(behind)) std::this_thread::yield();
  CHECK_FALSE(on.passed(behind));
  CHECK(t.waited_ns() > 0);
  shut.open();
  on.synchronize(t);
  CHECK(t.waited_ns() > 0);
  CHECK(s.waited_ns() == 0);
}

TEST_CASE("host device: a queue is bounded: the caller waits for room, and nothing is lost") {
  const vtier::host::device on;
  const auto s = on.make_stream();
  std::atomic<bool> started{false};
  on.launch(s, [&started] { started = true; });
  const contract::bystander<vtier::host::device> others{on};
  const gate shut;
  shut.stop(on, s);
  while (!started) std::this_thread::yield();
  std::vector<char> target(1);
  std::atomic<std::size_t> submitted{0};
  std::thread feeder{[&] {
    for (std::size_t i = 0; i < vtier::host::queue_items_max + 100; ++i) {
      on.fill(s, target.data(), static_cast<std::byte>(i % 256), 1);
      ++submitted;
    }
  }};
  while (submitted < vtier::host::queue_items_max - 1) std::this_thread::yield();
  others.work();
  // The stopping function may be in the queue still, or have been taken from it.
  CHECK(submitted <= vtier::host::queue_items_max + 1);
  shut.open();
  feeder.join();
  on.synchronize(s);
  CHECK(static_cast<unsigned char>(target[0]) == (vtier::host::queue_items_max + 99) % 256);
}

TEST_CASE("host device: a launched function may hold the stream that runs it") {
  const vtier::host::device on;
  auto s = std::make_shared<vtier::host::stream>(on.make_stream());
  std::atomic<int> ran{0};
  vtier::host::event last;
  {
    const gate shut;
    shut.stop(on, *s);
    const vtier::host::stream_ref name = *s;
    on.launch(name, [s = std::move(s)] { static_cast<void>(s); });
    on.launch(name, [&ran] { ++ran; });
    last = on.record(name);
  }
  on.synchronize(last);
  CHECK(ran == 1);
}

TEST_CASE("host device: a stream that dies after main runs its work") {
  const vtier::host::device on;
  left_behind.emplace(on.make_stream());
  on.launch(*left_behind, [] { ++ran_after_main; });
}

TEST_CASE("host device: in a forked child every call is an answer, and dropping things waits for nothing (VO-C07)") {
  auto on = std::make_unique<vtier::host::device>(device_of(8_MiB));
  auto s = std::make_unique<vtier::host::stream>(on->make_stream());
  std::vector<char> target(64);
  void* const block = on->allocate(1000);
  const auto passed = on->record(*s);
  on->synchronize(passed);
  gate shut;
  shut.stop(*on, *s);  // the stream's thread is in the middle of something at the fork, and something is queued
  const auto pending = on->record(*s);
  on->fill(*s, target.data(), std::byte{7}, target.size());
  const auto end = vtier::test::in_child([&] {
    ::alarm(60);
    int refused = 0;
    const auto attempt = [&](auto&& call) {
      try {
        call();
      } catch (const vtier::usage_error& e) {
        if (std::string{e.what()}.find("forked") != std::string::npos) ++refused;
      }
    };
    attempt([&] { static_cast<void>(on->make_stream()); });
    attempt([&] { static_cast<void>(on->record(*s)); });
    attempt([&] { on->wait(*s, pending); });
    attempt([&] { on->synchronize(pending); });
    attempt([&] { on->synchronize(*s); });
    attempt([&] { on->copy(*s, target.data(), block, 1, vtier::copy_direction::device_to_host); });
    attempt([&] { on->fill(*s, target.data(), std::byte{8}, target.size()); });
    attempt([&] { on->launch(*s, [] {}); });
    attempt([&] { static_cast<void>(on->allocate(1)); });
    attempt([&] { static_cast<void>(on->allocate(*s, 1)); });
    attempt([&] { static_cast<void>(on->memory()); });
    on->synchronize(passed);
    if (refused != 11 || on->passed(pending) || !on->passed(passed)) return false;
    on->deallocate(*s, block, 1000);
    on->deallocate(block, 1000);
    s.reset();
    on.reset();
    if (!vtier::test::threads_after_fork) return true;
    const vtier::host::device own;  // one of the child's own works
    const auto t = own.make_stream();
    own.fill(t, target.data(), std::byte{9}, target.size());
    own.synchronize(t);
    return target.back() == 9;
  });
  CAPTURE(end.text, end.signal);
  CHECK(end.exit_status == 0);
  shut.open();
  on->synchronize(*s);
  CHECK(target.back() == 7);
  on->deallocate(*s, block, 1000);
  on->synchronize(*s);
  CHECK(on->memory().free_bytes == 8_MiB);
}
