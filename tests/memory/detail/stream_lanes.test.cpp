// SPDX-License-Identifier: Apache-2.0
// Pools in stream order, on the simulated device: whatever order a seed chooses, nobody gets bytes that are still used.

#include <vtier/memory/detail/stream_lanes.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/random_source.hpp>
#include <vtier/core/simulation.hpp>
#include <vtier/device/host.hpp>
#include <vtier/device/sim.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/memory/pool.hpp>
#include <vtier/memory/resource.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"

using namespace vtier::literals;

namespace {

using vtier::sim::device;
using vtier::sim::world;
using memory = vtier::hbm<device>;
using pool = vtier::pool<memory>;

static_assert(vtier::stream_ordered_resource<pool>);
static_assert(vtier::stream_ordered_resource<vtier::pool<vtier::pinned, std::mutex, device>>);
static_assert(vtier::resource<vtier::pool<vtier::pinned>> &&
              !vtier::stream_ordered_resource<vtier::pool<vtier::pinned>>);

struct scene {
  explicit scene(std::uint64_t seed = 1, std::size_t budget = 64_KiB)
      : machine{std::make_shared<world>(vtier::sim::world_options{.seed = seed})}, on{machine, sized(budget)} {}

  static vtier::sim::device_options sized(std::size_t budget) {
    vtier::sim::device_options o;
    o.memory_bytes = budget;
    return o;
  }

  // A kernel that writes its own number all over a block, and one that finds it there.
  void fill(const device::stream& s, void* p, std::size_t size, unsigned char number) {
    on.launch(s, [w = machine.get(), q = static_cast<unsigned char*>(p), size, number] {
      w->writes(q, size);
      std::fill(q, q + size, number);
    });
  }
  void expect(const device::stream& s, void* p, std::size_t size, unsigned char number) {
    on.launch(s, [w = machine.get(), q = static_cast<unsigned char*>(p), size, number] {
      w->reads(q, size);
      if (std::count(q, q + size, number) != static_cast<std::ptrdiff_t>(size)) w->violation("wrong bytes");
    });
  }
  [[nodiscard]] std::string said() const {
    std::string all;
    for (const auto& v : machine->violations()) all += v + "\n";
    return all;
  }

  std::shared_ptr<world> machine;
  device on;
};

}  // namespace

TEST_CASE("a stream has its own bytes again at once, others when it has passed", "[memory][stream_lanes]") {
  scene s;
  {
    const pool p{memory{s.on, {.budget = 64_KiB}}};
    const auto a = s.on.make_stream();
    const auto b = s.on.make_stream();
    void* const first = p.allocate(a, 32_KiB, 256);
    s.fill(a, first, 32_KiB, 1);
    p.deallocate(a, first, 32_KiB, 256);
    CHECK(p.used_bytes() == 0);
    CHECK(p.live_count() == 0);
    CHECK(p.allocate(a, 32_KiB, 256) == first);
    s.fill(a, first, 32_KiB, 2);
    s.expect(a, first, 32_KiB, 2);
    p.deallocate(a, first, 32_KiB, 256);

    void* const other = p.allocate(b, 32_KiB, 256);  // a has not passed: b gets what was never used
    CHECK(other != first);
    s.fill(b, other, 32_KiB, 3);
    s.on.synchronize(a);
    void* const later = p.allocate(b, 16_KiB, 256);
    CHECK(later == first);
    s.fill(b, later, 16_KiB, 4);
    s.expect(b, other, 32_KiB, 3);
    p.deallocate(b, other, 32_KiB, 256);
    p.deallocate(b, later, 16_KiB, 256);
  }
  CHECK(s.said().empty());
}

TEST_CASE("what one stream gave back in pieces it has again as a whole", "[memory][stream_lanes]") {
  scene s;
  const pool p{memory{s.on, {.budget = 64_KiB}}};
  const auto a = s.on.make_stream();
  std::vector<void*> pieces;
  for (int i = 0; i < 8; ++i) pieces.push_back(p.allocate(a, 8_KiB, 256));
  for (void* const piece : pieces) s.fill(a, piece, 8_KiB, 1);
  for (const std::size_t i : {3U, 1U, 0U, 2U, 7U, 5U, 6U, 4U}) p.deallocate(a, pieces[i], 8_KiB, 256);
  void* const whole = p.allocate(a, 64_KiB, 256);
  CHECK(whole == pieces[0]);
  s.fill(a, whole, 64_KiB, 2);
  p.deallocate(a, whole, 64_KiB, 256);
  void* const aligned = p.allocate(a, 1_KiB, 4096);  // out of the middle of what waits
  CHECK(reinterpret_cast<std::uintptr_t>(aligned) % 4096 == 0);
  CHECK(p.used_bytes() == 1_KiB);
  s.fill(a, aligned, 1_KiB, 3);
  p.deallocate(a, aligned, 1_KiB, 256);
  CHECK(s.said().empty());
}

TEST_CASE("where only used bytes are left a stream waits for the others, and the host for all",
          "[memory][stream_lanes]") {
  scene s;
  const pool p{memory{s.on, {.budget = 64_KiB}}};
  const auto a = s.on.make_stream();
  const auto b = s.on.make_stream();
  const auto c = s.on.make_stream();
  void* const one = p.allocate(a, 24_KiB, 256);
  void* const two = p.allocate(b, 24_KiB, 256);
  s.fill(a, one, 24_KiB, 1);
  s.fill(b, two, 24_KiB, 2);
  p.deallocate(a, one, 24_KiB, 256);
  p.deallocate(b, two, 24_KiB, 256);
  void* const all = p.allocate(c, 64_KiB, 256);  // across both, and across what is free behind them
  CHECK(all == (std::min)(one, two));
  CHECK_FALSE(s.on.passed(s.on.record(a)));  // nobody has waited
  s.fill(c, all, 64_KiB, 3);
  s.expect(c, all, 64_KiB, 3);
  CHECK_THROWS_AS(p.allocate(a, 256, 256), vtier::out_of_memory);
  p.deallocate(c, all, 64_KiB, 256);
  void* const host = p.allocate(64_KiB, 256);  // the host waits for c
  CHECK(host == all);
  CHECK(s.on.passed(s.on.record(c)));
  p.deallocate(host, 64_KiB, 256);
  CHECK(p.free_bytes() == 64_KiB);
  CHECK(s.said().empty());
}

TEST_CASE("what lies in two ranges becomes one block once the host has waited for both", "[memory][stream_lanes]") {
  scene s{1, 8_MiB};
  const pool p{memory{s.on, {.budget = 8_MiB}}, {.growth_bytes = 64_KiB}};
  const auto a = s.on.make_stream();
  const auto b = s.on.make_stream();
  const auto c = s.on.make_stream();
  void* const one = p.allocate(a, 4_MiB, 256);
  void* const two = p.allocate(b, 4_MiB, 256);
  REQUIRE(static_cast<char*>(two) != static_cast<char*>(one) + 4_MiB);
  s.fill(a, one, 4_MiB, 1);
  s.fill(b, two, 4_MiB, 2);
  p.deallocate(a, one, 4_MiB, 256);
  p.deallocate(b, two, 4_MiB, 256);
  void* const all = p.allocate(c, 8_MiB, 256);
  CHECK(s.on.passed(s.on.record(a)));
  CHECK(s.on.passed(s.on.record(b)));
  s.fill(c, all, 8_MiB, 3);
  s.expect(c, all, 8_MiB, 3);
  p.deallocate(c, all, 8_MiB, 256);
  CHECK(s.said().empty());
}

TEST_CASE("nobody waits for a request that can never be served", "[memory][stream_lanes]") {
  scene s;
  const pool p{memory{s.on, {.budget = 64_KiB}}};
  const auto a = s.on.make_stream();
  const auto b = s.on.make_stream();
  void* const one = p.allocate(a, 48_KiB, 256);
  for (unsigned char i = 0; i < 100; ++i) s.fill(a, one, 48_KiB, i);
  const auto filled = s.on.record(a);
  p.deallocate(a, one, 48_KiB, 256);
  CHECK_THROWS_AS(p.allocate(b, 65_KiB, 256), vtier::out_of_memory);
  CHECK(s.on.passed(s.on.record(b)));  // it waits for nothing
  CHECK_THROWS_AS(p.allocate(65_KiB, 256), vtier::out_of_memory);
  CHECK_FALSE(s.on.passed(filled));
  void* const again = p.allocate(a, 48_KiB, 256);  // still a's own
  CHECK(again == one);
  CHECK_FALSE(s.on.passed(filled));
  p.deallocate(a, again, 48_KiB, 256);
  CHECK(s.said().empty());
}

TEST_CASE("random programs on several streams never meet in one byte", "[memory][stream_lanes]") {
  for (std::uint64_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    vtier::random_source random{seed};
    const std::size_t budget = (8 + random.below(56)) * 1_KiB;
    scene s{seed, budget};
    {
      struct held {
        void* pointer;
        std::size_t size;
        std::size_t stream;
        unsigned char number;
      };
      // One in three in chunks, some of which lie side by side: their blocks stay apart.
      const std::size_t chunk = seed % 3 == 0 ? (1 + random.below(4)) * 2_KiB : 0;
      const pool p{memory{s.on, {.budget = budget}}, {.growth_bytes = 256 + random.below(8'192), .chunk_bytes = chunk}};
      std::vector<device::stream> streams;
      for (std::size_t i = 0; i < 1 + random.below(4); ++i) streams.push_back(s.on.make_stream());
      std::vector<held> live;
      std::size_t used = 0;
      unsigned char number = 0;
      for (int step = 0; step < 150; ++step) {
        const std::uint64_t choice = random.below(10);
        if (choice < 6) {
          const std::size_t size = 1 + random.below(budget / 4);
          const std::size_t alignment = std::size_t{1} << random.below(11);
          const std::size_t at = random.below(streams.size());
          try {
            // The host's allocation is over when it returns: any stream may use it.
            void* const q =
                random.below(6) == 0 ? p.allocate(size, alignment) : p.allocate(streams[at], size, alignment);
            REQUIRE(reinterpret_cast<std::uintptr_t>(q) % alignment == 0);
            live.push_back({q, size, at, ++number});
            used += vtier::align_up(size, 256);
            s.fill(streams[at], q, size, number);
          } catch (const vtier::out_of_memory&) {
            REQUIRE(used > 0);
          }
        } else if (choice < 9 && !live.empty()) {
          std::swap(live[random.below(live.size())], live.back());
          const held one = live.back();
          live.pop_back();
          const auto& stream = streams[one.stream];
          s.expect(stream, one.pointer, one.size, one.number);
          if (random.below(5) == 0) {
            s.on.synchronize(stream);
            p.deallocate(one.pointer, one.size, 1);
          } else {
            p.deallocate(stream, one.pointer, one.size, 1);
          }
          used -= vtier::align_up(one.size, 256);
        } else if (streams.size() > 1 && random.below(6) == 0) {  // a stream ends, another one begins
          const std::size_t at = random.below(streams.size());
          const bool has_any = std::any_of(live.begin(), live.end(), [&](const held& one) { return one.stream == at; });
          if (!has_any) streams[at] = s.on.make_stream();
        }
        REQUIRE(p.used_bytes() == used);
        REQUIRE(p.live_count() == live.size());
      }
      for (const held& one : live) p.deallocate(streams[one.stream], one.pointer, one.size, 1);
      void* const whole = p.allocate(vtier::align_down(budget, 256), 256);  // nothing is lost, nothing stays apart
      p.deallocate(whole, vtier::align_down(budget, 256), 256);
    }
    REQUIRE(s.said().empty());
  }
}

TEST_CASE("a second free and a foreign pointer are told in stream order too", "[memory][stream_lanes]") {
  const vtier::host::device on;
  const vtier::pool p{vtier::hbm{on, {.budget = 64_KiB}}};
  const auto stream = on.make_stream();
  void* const q = p.allocate(stream, 1_KiB, 256);
  CHECK(vtier::test::in_child([&] {
          p.deallocate(stream, static_cast<char*>(q) + 256, 256, 256);
        }).asserted("does not own it, or twice"));
  CHECK(vtier::test::in_child([&] { p.deallocate(stream, q, 2_KiB, 256); }).asserted("another size"));
  p.deallocate(stream, q, 1_KiB, 256);
}
