// SPDX-License-Identifier: Apache-2.0
#pragma once

// What every device does: one function for each promise of the concept `vtier::device`.
//
// Each takes a device and uses nothing but the concept, so that host, GPU and simulation are held to the same words.
// Order is shown without a clock: a stream is stopped by a launched function until the test opens a gate. While a gate
// is shut, no other stream is made to run a launched function, because a runtime may run them all on one thread, and no
// memory comes or goes, because a runtime may wait for the whole device then. A device that is
// single-threaded cannot stop a stream so: it runs `device_contract_without_gates`.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/catch.hpp"

#include <vtier/core/error.hpp>
#include <vtier/device/device.hpp>

namespace contract {

/// Stops a stream until it is opened; opens itself when the test leaves, so that a failed check does not hang.
///
/// Needs   to be declared after streams and memory: theirs are the destructors that wait
class gate {
 public:
  gate() : open_{std::make_shared<std::atomic<int>>(0)} {}
  gate(const gate&) = delete;
  gate& operator=(const gate&) = delete;
  ~gate() { open(); }

  template <vtier::device Device>
  void stop(const Device& on, const typename Device::stream& s) const {
    on.launch(s, [open = open_] {
      while (open->load() == 0) open->wait(0);
    });
  }
  void open() const {
    open_->store(1);
    open_->notify_all();
  }

 private:
  std::shared_ptr<std::atomic<int>> open_;
};

/// Page-locked host memory of a device, for copies.
template <vtier::device Device>
class host_bytes {
 public:
  host_bytes(const Device& on, std::size_t size) : on_{on}, size_{size}, data_{on.allocate_host(size)} {}
  host_bytes(const host_bytes&) = delete;
  host_bytes& operator=(const host_bytes&) = delete;
  ~host_bytes() { on_.deallocate_host(data_, size_); }

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }
  [[nodiscard]] std::size_t size() const { return size_; }

  /// Writes bytes that differ from place to place and from seed to seed.
  void pattern(std::uint32_t seed) const {
    for (std::size_t i = 0; i < size_; ++i) data()[i] = expected(seed, i);
  }
  void all(std::byte value) const {
    for (std::size_t i = 0; i < size_; ++i) data()[i] = value;
  }
  [[nodiscard]] bool has_pattern(std::uint32_t seed) const {
    for (std::size_t i = 0; i < size_; ++i) {
      if (data()[i] != expected(seed, i)) return false;
    }
    return true;
  }
  [[nodiscard]] bool has_all(std::byte value) const {
    for (std::size_t i = 0; i < size_; ++i) {
      if (data()[i] != value) return false;
    }
    return true;
  }

 private:
  static std::byte expected(std::uint32_t seed, std::size_t i) {
    const auto mixed = (static_cast<std::uint32_t>(i) + seed * 40'503U) * 2'654'435'761U;
    return static_cast<std::byte>(mixed >> 24U);
  }

  Device on_;
  std::size_t size_;
  void* data_;
};

/// Device memory, from allocate(bytes).
template <vtier::device Device>
class device_bytes {
 public:
  device_bytes(const Device& on, std::size_t size) : on_{on}, size_{size}, data_{on.allocate(size)} {}
  device_bytes(const device_bytes&) = delete;
  device_bytes& operator=(const device_bytes&) = delete;
  ~device_bytes() { on_.deallocate(data_, size_); }
  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  Device on_;
  std::size_t size_;
  void* data_;
};

/// Work of other streams, done to its end, so that a stream that should stand still has had its chance.
///
/// Needs   to be declared before the gate: a runtime may wait for the whole device when memory comes or goes
template <vtier::device Device>
class bystander {
 public:
  explicit bystander(const Device& on) : on_{on}, other_{on.make_stream()}, from_{on, 4096}, to_{on, 4096} {
    from_.all(std::byte{1});
  }

  void work() const {
    for (int i = 0; i < 50; ++i) {
      on_.copy(other_, to_.data(), from_.data(), from_.size(), vtier::copy_direction::host_to_device);
      on_.synchronize(on_.record(other_));
      std::this_thread::yield();
    }
  }

 private:
  Device on_;
  typename Device::stream other_;
  host_bytes<Device> from_;
  device_bytes<Device> to_;
};

using vtier::copy_direction;

template <vtier::device Device>
void copies_are_the_same_device(const Device& on) {
  const Device copy = on;
  CHECK(copy == on);
  CHECK(copy.name() == on.name());
  CHECK_FALSE(on.name().empty());
  const vtier::device_memory now = on.memory();
  CHECK(now.total_bytes > 0);
  CHECK(now.free_bytes <= now.total_bytes);
}

template <vtier::device Device>
void a_default_event_has_passed(const Device& on) {
  const typename Device::event none;
  const auto s = on.make_stream();
  CHECK(on.passed(none));
  on.synchronize(none);
  on.wait(s, none);
  on.synchronize(s);
}

template <vtier::device Device>
void copies_are_exact(const Device& on) {
  const auto s = on.make_stream();
  std::uint32_t seed = 1;
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, std::size_t{3}, std::size_t{511}, std::size_t{4097},
                                 (std::size_t{1} << 20U) + 1}) {
    CAPTURE(size);
    ++seed;
    const std::size_t around = size + 2;  // one byte on each side that must stay
    const host_bytes<Device> source{on, around};
    const host_bytes<Device> target{on, around};
    const host_bytes<Device> second{on, around};
    const device_bytes<Device> a{on, around};
    const device_bytes<Device> b{on, around};
    source.pattern(seed);
    target.all(std::byte{0xEE});
    second.all(std::byte{0xEE});
    on.copy(s, a.data() + 1, source.data() + 1, size, copy_direction::host_to_device);
    on.copy(s, b.data() + 1, a.data() + 1, size, copy_direction::device_to_device);
    on.copy(s, target.data() + 1, b.data() + 1, size, copy_direction::device_to_host);
    on.copy(s, second.data() + 1, target.data() + 1, size, copy_direction::host_to_host);
    on.synchronize(s);
    const bool exact = size == 0 || std::memcmp(target.data() + 1, source.data() + 1, size) == 0;
    const bool exact_second = size == 0 || std::memcmp(second.data() + 1, source.data() + 1, size) == 0;
    CHECK(exact);
    CHECK(exact_second);
    for (const auto* h : {&target, &second}) {
      CHECK(h->data()[0] == std::byte{0xEE});
      CHECK(h->data()[size + 1] == std::byte{0xEE});
    }
  }
}

template <vtier::device Device>
void fill_writes_its_range_only(const Device& on) {
  const auto s = on.make_stream();
  constexpr std::size_t size = 4097;
  const device_bytes<Device> memory{on, size};
  const host_bytes<Device> back{on, size};
  on.fill(s, memory.data(), std::byte{0x11}, size);
  on.fill(s, memory.data() + 1, std::byte{0xFE}, size - 2);
  on.fill(s, memory.data() + 5, std::byte{0x77}, 0);
  on.copy(s, back.data(), memory.data(), size, copy_direction::device_to_host);
  on.synchronize(s);
  CHECK(back.data()[0] == std::byte{0x11});
  CHECK(back.data()[size - 1] == std::byte{0x11});
  bool inside = true;
  for (std::size_t i = 1; i + 1 < size; ++i) inside = inside && back.data()[i] == std::byte{0xFE};
  CHECK(inside);
}

/// Each copy needs the one before it: any other order leaves another byte.
template <vtier::device Device>
void a_stream_runs_in_order(const Device& on) {
  const auto s = on.make_stream();
  constexpr std::size_t size = 64 * 1024;
  constexpr std::size_t steps = 64;
  const device_bytes<Device> memory{on, size * 2};
  const host_bytes<Device> back{on, size * steps};
  for (std::size_t i = 0; i < steps; ++i) {
    on.fill(s, memory.data(), static_cast<std::byte>(i), size);
    on.copy(s, memory.data() + size, memory.data(), size, copy_direction::device_to_device);
    on.copy(s, back.data() + i * size, memory.data() + size, size, copy_direction::device_to_host);
  }
  on.synchronize(s);
  for (std::size_t i = 0; i < steps; ++i) {
    CAPTURE(i);
    CHECK(back.data()[i * size] == static_cast<std::byte>(i));
    CHECK(back.data()[i * size + size - 1] == static_cast<std::byte>(i));
  }
}

template <vtier::device Device>
void functions_run_in_order(const Device& on) {
  const auto s = on.make_stream();
  std::vector<int> seen;  // written by the stream, read after synchronize
  for (int i = 0; i < 100; ++i) on.launch(s, [&seen, i] { seen.push_back(i); });
  on.synchronize(s);
  REQUIRE(seen.size() == 100);
  for (int i = 0; i < 100; ++i) CHECK(seen[static_cast<std::size_t>(i)] == i);
}

/// A function sees what was copied before it, and what it writes is copied after it.
template <vtier::device Device>
void functions_stand_in_line_with_copies(const Device& on) {
  const auto s = on.make_stream();
  constexpr std::size_t size = 1U << 20U;
  const host_bytes<Device> host{on, size};
  const host_bytes<Device> back{on, size};
  const device_bytes<Device> memory{on, size};
  on.fill(s, memory.data(), std::byte{5}, size);
  on.copy(s, host.data(), memory.data(), size, copy_direction::device_to_host);
  bool saw = false;
  on.launch(s, [&] {
    saw = host.has_all(std::byte{5});
    host.all(std::byte{6});
  });
  on.copy(s, memory.data(), host.data(), size, copy_direction::host_to_device);
  on.copy(s, back.data(), memory.data(), size, copy_direction::device_to_host);
  on.synchronize(s);
  CHECK(saw);
  CHECK(back.has_all(std::byte{6}));
}

/// What a function holds is let go by the time the stream has passed it.
template <vtier::device Device>
void functions_are_destroyed(const Device& on) {
  const auto s = on.make_stream();
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  on.launch(s, [held = std::move(held)] { *held = 2; });
  on.synchronize(s);
  on.launch(s, [] {});  // the one before is done with entirely once the next has run
  on.synchronize(s);
  CHECK(watch.expired());
}

template <vtier::device Device>
void synchronize_tells_what_a_function_threw(const Device& on) {
  const auto s = on.make_stream();
  int after = 0;
  on.launch(s, [] { throw std::runtime_error("a broken pencil"); });
  on.launch(s, [&after] { after = 1; });
  try {
    on.synchronize(s);
    FAIL("nothing was thrown");
  } catch (const vtier::device_error& e) {
    CHECK(std::string{e.what()}.find("a broken pencil") != std::string::npos);
  }
  CHECK(after == 1);  // later work has run
  on.synchronize(s);  // told once
  on.launch(s, [] { throw 42; });
  const auto e = on.record(s);
  CHECK_THROWS_AS(on.synchronize(e), vtier::device_error);
  on.synchronize(e);
  on.synchronize(s);
  on.launch(s, [] { throw std::runtime_error("another one"); });
  CHECK_THROWS_AS(on.synchronize(s), vtier::device_error);
}

template <vtier::device Device>
void an_empty_function_is_refused(const Device& on) {
  const auto s = on.make_stream();
  CHECK_THROWS_AS(on.launch(s, std::function<void()>{}), vtier::usage_error);
}

template <vtier::device Device>
void memory_comes_and_goes(const Device& on) {
  CHECK(on.allocate(0) == nullptr);
  on.deallocate(nullptr, 0);
  for (const std::size_t size : {std::size_t{1}, std::size_t{255}, std::size_t{4097}, (std::size_t{5} << 20U) + 1}) {
    CAPTURE(size);
    void* const a = on.allocate(size);
    void* const b = on.allocate(size);
    REQUIRE(a != nullptr);
    REQUIRE(b != nullptr);
    CHECK(a != b);
    CHECK(reinterpret_cast<std::uintptr_t>(a) % 256 == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(b) % 256 == 0);
    on.deallocate(a, size);
    on.deallocate(b, size);
  }
}

template <vtier::device Device>
void host_memory_comes_and_goes(const Device& on) {
  CHECK(on.allocate_host(0) == nullptr);
  on.deallocate_host(nullptr, 0);
  for (const std::size_t size : {std::size_t{1}, std::size_t{4097}, (std::size_t{5} << 20U) + 1}) {
    const host_bytes<Device> block{on, size};
    CHECK(reinterpret_cast<std::uintptr_t>(block.data()) % 4096 == 0);
    block.pattern(9);
    CHECK(block.has_pattern(9));
  }
}

/// Registered memory, and memory that could not be registered, copies right.
template <vtier::device Device>
void registered_memory_copies(const Device& on) {
  const auto s = on.make_stream();
  constexpr std::size_t size = 64 * 1024;
  std::vector<std::byte> from(size, std::byte{0x3C});
  std::vector<std::byte> back(size);
  const device_bytes<Device> memory{on, size};
  const bool registered = on.register_host(from.data(), size);
  on.copy(s, memory.data(), from.data(), size, copy_direction::host_to_device);
  on.copy(s, back.data(), memory.data(), size, copy_direction::device_to_host);
  on.synchronize(s);
  CHECK(back == from);
  if (registered) on.unregister_host(from.data());
}

/// A block that is freed and allocated again in one stream is used by the old work first, then by the new.
template <vtier::device Device>
void memory_in_stream_order(const Device& on) {
  const auto s = on.make_stream();
  constexpr std::size_t size = 1U << 20U;
  constexpr std::size_t rounds = 16;
  const host_bytes<Device> back{on, size * rounds};
  CHECK(on.allocate(s, 0) == nullptr);
  on.deallocate(s, nullptr, 0);
  for (std::size_t i = 0; i < rounds; ++i) {
    void* const block = on.allocate(s, size);
    REQUIRE(block != nullptr);
    CHECK(reinterpret_cast<std::uintptr_t>(block) % 256 == 0);
    on.fill(s, block, static_cast<std::byte>(i + 1), size);
    on.copy(s, back.data() + i * size, block, size, copy_direction::device_to_host);
    on.deallocate(s, block, size);
  }
  on.synchronize(s);
  for (std::size_t i = 0; i < rounds; ++i) {
    CAPTURE(i);
    bool same = true;
    for (std::size_t k = 0; k < size; ++k) same = same && back.data()[i * size + k] == static_cast<std::byte>(i + 1);
    CHECK(same);
  }
}

template <vtier::device Device>
void out_of_memory_says_where_and_how_much(const Device& on) {
  const auto s = on.make_stream();
  const std::size_t too_much = on.memory().total_bytes * 2;
  for (const bool in_stream : {false, true}) {
    CAPTURE(in_stream);
    try {
      static_cast<void>(in_stream ? on.allocate(s, too_much) : on.allocate(too_much));
      FAIL("nothing was thrown");
    } catch (const vtier::out_of_memory& e) {
      CHECK(e.tier() == on.name());
      CHECK(e.asked_bytes() == too_much);
      CHECK(e.free_bytes() <= on.memory().total_bytes);
      CHECK(std::string{e.what()}.find(on.name()) != std::string::npos);
    }
  }
  void* const still = on.allocate(256);  // the device works on
  on.fill(s, still, std::byte{1}, 256);
  on.synchronize(s);
  on.deallocate(still, 256);
}

/// An event outlives its stream, and can be waited for and asked at any time after.
template <vtier::device Device>
void an_event_survives_its_stream(const Device& on) {
  constexpr std::size_t size = 1U << 20U;
  const device_bytes<Device> memory{on, size};
  const host_bytes<Device> back{on, size};
  std::optional<typename Device::event> e;
  {
    const auto s = on.make_stream();
    on.fill(s, memory.data(), std::byte{0x42}, size);
    e = on.record(s);
  }
  const auto t = on.make_stream();
  on.wait(t, *e);
  on.copy(t, back.data(), memory.data(), size, copy_direction::device_to_host);
  on.synchronize(t);
  CHECK(back.has_all(std::byte{0x42}));
  CHECK(on.passed(*e));
  on.synchronize(*e);
}

/// A thousand events, dropped as soon as they were waited for: each wait is for the recording that it was given.
template <vtier::device Device>
void a_thousand_events(const Device& on) {
  const auto producer = on.make_stream();
  const auto consumer = on.make_stream();
  constexpr std::size_t size = 4096;
  constexpr std::size_t rounds = 1000;
  const device_bytes<Device> memory{on, size};
  const host_bytes<Device> back{on, size * rounds};
  for (std::size_t i = 0; i < rounds; ++i) {
    on.fill(producer, memory.data(), static_cast<std::byte>(i % 251), size);
    on.wait(consumer, on.record(producer));
    on.copy(consumer, back.data() + i * size, memory.data(), size, copy_direction::device_to_host);
    on.wait(producer, on.record(consumer));  // the other edge: not overwritten while it is read
  }
  on.synchronize(consumer);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < size * rounds; ++i) {
    if (back.data()[i] != static_cast<std::byte>(i / size % 251)) ++wrong;
  }
  CHECK(wrong == 0);
}

/// Threads feed a stream each, and all of them one more.
template <vtier::device Device>
void threads_feed_streams(const Device& on) {
  constexpr std::size_t threads = 4;
  constexpr int rounds = 200;
  constexpr std::size_t size = 4096;
  const auto common = on.make_stream();
  int counted = 0;  // by the common stream alone: work in one stream does not overlap
  const host_bytes<Device> back{on, size * threads};
  std::vector<std::thread> running;
  for (std::size_t t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      const auto own = on.make_stream();
      const device_bytes<Device> memory{on, size};
      for (int i = 0; i < rounds; ++i) {
        on.fill(own, memory.data(), static_cast<std::byte>(t + 1), size);
        on.launch(common, [&counted] { ++counted; });
      }
      on.copy(own, back.data() + t * size, memory.data(), size, copy_direction::device_to_host);
      on.synchronize(own);
    });
  }
  for (std::thread& t : running) t.join();
  on.synchronize(common);
  CHECK(counted == rounds * static_cast<int>(threads));
  for (std::size_t t = 0; t < threads; ++t) CHECK(back.data()[t * size + size - 1] == static_cast<std::byte>(t + 1));
}

// What follows stops a stream by a gate.

/// An event passes only once everything before it has run, and one that has passed stays so.
template <vtier::device Device>
void an_event_passes_after_earlier_work(const Device& on) {
  const auto s = on.make_stream();
  const auto before = on.record(s);
  on.synchronize(before);
  CHECK(on.passed(before));
  const bystander<Device> others{on};
  const gate shut;
  shut.stop(on, s);
  const auto after = on.record(s);
  const auto copy = after;
  others.work();
  CHECK(on.passed(before));
  CHECK_FALSE(on.passed(after));
  CHECK_FALSE(on.passed(copy));
  shut.open();
  on.synchronize(copy);
  CHECK(on.passed(after));
}

/// Both edges of a hand-over: the consumer waits for the producer, and the producer for the consumer before it goes on.
template <vtier::device Device>
void streams_wait_for_each_other(const Device& on) {
  constexpr std::size_t size = 1U << 20U;
  const device_bytes<Device> memory{on, size};
  const host_bytes<Device> old_bytes{on, size};
  const host_bytes<Device> new_bytes{on, size};
  const host_bytes<Device> first{on, size};
  const host_bytes<Device> second{on, size};
  const auto producer = on.make_stream();
  const auto consumer = on.make_stream();
  old_bytes.pattern(1);
  new_bytes.pattern(2);
  first.all(std::byte{});
  on.fill(producer, memory.data(), std::byte{}, size);
  on.synchronize(producer);

  const bystander<Device> others{on};
  const gate shut;
  shut.stop(on, producer);
  on.copy(producer, memory.data(), old_bytes.data(), size, copy_direction::host_to_device);
  on.wait(consumer, on.record(producer));
  on.copy(consumer, first.data(), memory.data(), size, copy_direction::device_to_host);
  const auto read = on.record(consumer);
  on.wait(producer, read);
  on.copy(producer, memory.data(), new_bytes.data(), size, copy_direction::host_to_device);
  on.wait(consumer, on.record(producer));
  on.copy(consumer, second.data(), memory.data(), size, copy_direction::device_to_host);
  others.work();
  CHECK_FALSE(on.passed(read));  // without its wait the consumer would be through by now
  shut.open();
  on.synchronize(consumer);
  CHECK(first.has_pattern(1));
  CHECK(second.has_pattern(2));
}

/// The host does not block in anything that submits work, here behind a stream that stands still.
template <vtier::device Device>
void submitting_does_not_block(const Device& on) {
  constexpr std::size_t size = 4096;
  const device_bytes<Device> memory{on, size};
  const host_bytes<Device> host{on, size};
  const auto stopped = on.make_stream();
  const auto other = on.make_stream();
  const gate shut;
  shut.stop(on, stopped);
  for (int i = 0; i < 20; ++i) {
    on.fill(stopped, memory.data(), std::byte{1}, size);
    on.copy(stopped, host.data(), memory.data(), size, copy_direction::device_to_host);
    on.wait(other, on.record(stopped));
  }
  const auto last = on.record(other);
  CHECK_FALSE(on.passed(last));
  shut.open();
  on.synchronize(last);
  CHECK(host.has_all(std::byte{1}));
}

/// Events copied, moved and dropped while they are pending do no harm to those that remain.
template <vtier::device Device>
void events_are_dropped_while_pending(const Device& on) {
  const auto s = on.make_stream();
  const auto t = on.make_stream();
  const bystander<Device> others{on};
  const gate shut;
  shut.stop(on, s);
  const auto kept = on.record(s);
  {
    std::vector<typename Device::event> many;
    for (int i = 0; i < 100; ++i) many.push_back(on.record(s));
    auto copies = many;
    many.clear();
    for (const auto& e : copies) on.wait(t, e);
    auto moved = std::move(copies.front());
    copies.clear();
    CHECK_FALSE(on.passed(moved));
  }
  // Recordings that may reuse what the dropped ones gave back, and pass at once.
  others.work();
  const auto behind = on.record(t);
  CHECK_FALSE(on.passed(kept));
  CHECK_FALSE(on.passed(behind));
  shut.open();
  on.synchronize(behind);
  CHECK(on.passed(kept));
}

/// The device's time does not go back, and a pause takes some of it.
template <vtier::device Device>
void time_goes_on(const Device& on) {
  const std::int64_t before = on.now_ns();
  on.pause(10'000);
  CHECK(on.now_ns() - before >= 10'000);
}

/// Everything that needs no stream to be stopped.
template <vtier::device Device>
void device_contract_without_gates(const Device& on) {
  SECTION("copies are the same device") { copies_are_the_same_device(on); }
  SECTION("a default event has passed") { a_default_event_has_passed(on); }
  SECTION("copies are exact") { copies_are_exact(on); }
  SECTION("fill writes its range only") { fill_writes_its_range_only(on); }
  SECTION("a stream runs in order") { a_stream_runs_in_order(on); }
  SECTION("functions run in order") { functions_run_in_order(on); }
  SECTION("functions stand in line with copies") { functions_stand_in_line_with_copies(on); }
  SECTION("functions are destroyed") { functions_are_destroyed(on); }
  SECTION("synchronize tells what a function threw") { synchronize_tells_what_a_function_threw(on); }
  SECTION("an empty function is refused") { an_empty_function_is_refused(on); }
  SECTION("memory comes and goes") { memory_comes_and_goes(on); }
  SECTION("host memory comes and goes") { host_memory_comes_and_goes(on); }
  SECTION("registered memory copies") { registered_memory_copies(on); }
  SECTION("memory in stream order") { memory_in_stream_order(on); }
  SECTION("out of memory says where and how much") { out_of_memory_says_where_and_how_much(on); }
  SECTION("an event survives its stream") { an_event_survives_its_stream(on); }
  SECTION("a thousand events") { a_thousand_events(on); }
  SECTION("time goes on") { time_goes_on(on); }
}

/// The whole contract.
template <vtier::device Device>
void device_contract(const Device& on) {
  device_contract_without_gates(on);
  SECTION("threads feed streams") { threads_feed_streams(on); }
  SECTION("an event passes after earlier work") { an_event_passes_after_earlier_work(on); }
  SECTION("streams wait for each other") { streams_wait_for_each_other(on); }
  SECTION("submitting does not block") { submitting_does_not_block(on); }
  SECTION("events are dropped while pending") { events_are_dropped_while_pending(on); }
}

}  // namespace contract
