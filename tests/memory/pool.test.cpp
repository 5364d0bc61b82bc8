// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/pool.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/random_source.hpp>
#include <vtier/device/host.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/numa.hpp>
#include <vtier/memory/pinned.hpp>

#include "contract/resource.hpp"
#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/faulty_device.hpp"
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
  SECTION("numa, in chunks") {
    const auto make = [](std::size_t budget) {
      return vtier::pool{vtier::numa{{.budget = budget}}, {.chunk_bytes = 4_KiB}};
    };
    vtier::test::check_resource(make, vtier::test::host_bytes{});
  }
  SECTION("a device without memory that grows, in chunks") {
    const vtier::test::faulty_device on;
    const auto make = [&](std::size_t budget) {
      return vtier::pool{vtier::hbm<vtier::test::faulty_device>{on, {.budget = budget}}};
    };
    vtier::test::check_resource(make, vtier::test::device_bytes<vtier::test::faulty_device>{on}, 3);
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
    if (round == 0) {
      CHECK(both == a);
      after_first = pool.reserved_bytes();
    }
    pool.deallocate(both, 2064, 16);
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

TEST_CASE("large blocks that follow each other grow into each other's place", "[memory][pool]") {
  // The logits of a step, their copy in fp32, the gradient of that: the first is gone when the third comes.
  const device on{{.memory_bytes = 64_MiB, .name = "device"}};
  const vtier::pool pool{vtier::hbm<device>{on, {.budget = 64_MiB, .granule_bytes = 64_KiB}}, {.growth_bytes = 64_KiB}};
  void* const weights = pool.allocate(4_MiB, 256);
  for (int step = 0; step < 3; ++step) {
    CAPTURE(step);
    void* const logits = pool.allocate(8_MiB, 256);
    void* const wide = pool.allocate(16_MiB, 256);
    pool.deallocate(logits, 8_MiB, 256);
    void* const gradient = pool.allocate(16_MiB, 256);
    CHECK(pool.reserved_bytes() == 36_MiB);
    CHECK(on.memory().free_bytes == 64_MiB - 36_MiB);
    pool.deallocate(wide, 16_MiB, 256);
    pool.deallocate(gradient, 16_MiB, 256);
  }
  pool.deallocate(weights, 4_MiB, 256);
}

TEST_CASE("memory moves from one range of a pool to another before anything is refused", "[memory][pool]") {
  const device on{{.memory_bytes = 16_MiB, .name = "device"}};
  const vtier::pool pool{vtier::hbm<device>{on, {.budget = 16_MiB, .granule_bytes = 64_KiB}}, {.growth_bytes = 64_KiB}};
  std::vector<void*> held;
  for (int i = 0; i < 3; ++i) held.push_back(pool.allocate(4_MiB, 256));  // each in a range of its own
  std::vector<void*> small;
  for (int i = 0; i < 64; ++i) small.push_back(pool.allocate(64_KiB, 256));  // in the fourth
  CHECK(pool.reserved_bytes() == 16_MiB);
  CHECK_THROWS_AS(pool.allocate(256, 256), vtier::out_of_memory);
  CHECK_THROWS_AS(pool.allocate(2_MiB, 256), vtier::out_of_memory);
  pool.deallocate(held[0], 4_MiB, 256);
  pool.deallocate(held[2], 4_MiB, 256);
  void* const both = pool.allocate(8_MiB, 256);
  CHECK(pool.reserved_bytes() == 16_MiB);
  CHECK(on.memory().free_bytes == 0);
  CHECK_THROWS_AS(pool.allocate(256, 256), vtier::out_of_memory);
  pool.deallocate(both, 8_MiB, 256);
  for (void* const p : small) pool.deallocate(p, 64_KiB, 256);  // kept for the next ones of this size
  void* const more = pool.allocate(12_MiB, 256);
  CHECK(on.memory().free_bytes == 0);
  pool.deallocate(held[1], 4_MiB, 256);
  pool.deallocate(more, 12_MiB, 256);
  void* const whole = pool.allocate(16_MiB, 256);
  CHECK(pool.free_bytes() == 0);
  pool.deallocate(whole, 16_MiB, 256);
}

TEST_CASE("blocks take what is for those of other sizes before anything is refused", "[memory][pool]") {
  const device on{{.memory_bytes = 16_MiB, .name = "device"}};
  const vtier::pool pool{vtier::hbm<device>{on, {.budget = 16_MiB, .granule_bytes = 64_KiB}}, {.growth_bytes = 64_KiB}};
  void* const low = pool.allocate(8_MiB, 256);
  void* const high = pool.allocate(8_MiB, 256);
  pool.deallocate(low, 8_MiB, 256);
  void* const two = pool.allocate(2_MiB, 256);
  void* const six = pool.allocate(6_MiB, 256);  // what is free lies before it
  pool.deallocate(two, 2_MiB, 256);
  CHECK(pool.free_bytes() == 2_MiB);
  void* const small = pool.allocate(100, 256);
  CHECK(pool.free_bytes() == 2_MiB - 256);
  pool.deallocate(small, 100, 256);
  pool.deallocate(six, 6_MiB, 256);
  pool.deallocate(high, 8_MiB, 256);
}

TEST_CASE("small blocks do not stand in the way of large ones", "[memory][pool]") {
  const device on{{.memory_bytes = 64_MiB, .name = "device"}};
  const vtier::pool pool{vtier::hbm<device>{on, {.budget = 64_MiB, .granule_bytes = 64_KiB}}, {.growth_bytes = 64_KiB}};
  void* const large = pool.allocate(8_MiB + 1, 256);  // leaves most of a step behind it
  void* const small = pool.allocate(10_KiB, 256);
  pool.deallocate(large, 8_MiB + 1, 256);
  void* const larger = pool.allocate(12_MiB, 256);
  CHECK(larger == large);
  pool.deallocate(larger, 12_MiB, 256);
  pool.deallocate(small, 10_KiB, 256);
}

TEST_CASE("what a pool does not use goes back when it is told to", "[memory][pool]") {
  const device on{{.memory_bytes = 16_MiB, .name = "device"}};
  const vtier::pool pool{vtier::hbm<device>{on, {.budget = 16_MiB, .granule_bytes = 64_KiB}}, {.growth_bytes = 64_KiB}};
  CHECK(pool.trim() == 0);
  void* const a = pool.allocate(2_MiB, 256);
  void* const b = pool.allocate(3_MiB, 256);
  void* const c = pool.allocate(4_KiB, 256);
  CHECK(pool.reserved_bytes() == 5_MiB + 64_KiB);
  pool.deallocate(b, 3_MiB, 256);
  CHECK(pool.trim() == 3_MiB);
  CHECK(pool.trim() == 0);
  CHECK(pool.reserved_bytes() == 2_MiB + 64_KiB);
  CHECK(pool.reserved_peak_bytes() == 5_MiB + 64_KiB);
  CHECK(on.memory().free_bytes == 14_MiB - 64_KiB);
  CHECK(pool.free_bytes() == 14_MiB - 4_KiB);
  void* const again = pool.allocate(3_MiB, 256);
  CHECK(again == b);
  std::memset(again, 1, 3_MiB);  // a host device: the pages are there again
  for (const auto& [p, size] : {std::pair{a, 2_MiB}, {again, 3_MiB}, {c, 4_KiB}}) pool.deallocate(p, size, 256);
  CHECK(pool.trim() == 5_MiB + 64_KiB);
  CHECK(on.memory().free_bytes == 16_MiB);

  const auto stream = on.make_stream();
  void* const waits = pool.allocate(stream, 64_KiB, 256);
  pool.deallocate(stream, waits, 64_KiB, 256);
  on.synchronize(stream);
  CHECK(pool.trim() == 64_KiB);  // the event has passed
}

TEST_CASE("a pool in chunks leaves the budget to others and gives idle chunks back", "[memory][pool]") {
  const vtier::numa memory{{.budget = 1_MiB, .name = "dram"}};
  const vtier::pool pool{memory, {.chunk_bytes = 64_KiB}};
  CHECK(memory.free_bytes() == 1_MiB);
  CHECK(pool.reserved_bytes() == 0);
  CHECK(pool.free_bytes() == 1_MiB);
  void* const a = pool.allocate(40_KiB, 256);
  void* const b = pool.allocate(40_KiB, 256);
  CHECK(pool.reserved_bytes() == 128_KiB);
  CHECK(memory.free_bytes() == 1_MiB - 128_KiB);
  void* const small = pool.allocate(20_KiB, 256);  // behind a or b
  CHECK(pool.reserved_bytes() == 128_KiB);
  void* const large = pool.allocate(200_KiB, 256);  // a chunk of its own
  CHECK(pool.reserved_bytes() == 328_KiB);
  pool.deallocate(b, 40_KiB, 256);
  pool.deallocate(large, 200_KiB, 256);
  CHECK(pool.trim() >= 200_KiB);
  CHECK(pool.reserved_bytes() <= 128_KiB);
  CHECK(memory.free_bytes() == 1_MiB - pool.reserved_bytes());

  // What is idle gives way to what needs a longer chunk, and to nothing else.
  void* const c = pool.allocate(300_KiB, 256);
  pool.deallocate(c, 300_KiB, 256);
  const std::size_t others = memory.free_bytes() - 128_KiB;
  void* const other = memory.allocate(others, 256);
  void* const d = pool.allocate(400_KiB, 256);
  CHECK_THROWS_AS(pool.allocate(600_KiB, 256), vtier::out_of_memory);
  pool.deallocate(d, 400_KiB, 256);
  memory.deallocate(other, others, 256);
  pool.deallocate(a, 40_KiB, 256);
  pool.deallocate(small, 20_KiB, 256);
  static_cast<void>(pool.trim());
  CHECK(memory.free_bytes() == 1_MiB);
  CHECK(pool.reserved_bytes() == 0);
  CHECK_THROWS_AS(pool.allocate(2_MiB, 256), vtier::out_of_memory);
}

TEST_CASE("random programs of pools with ranges and with chunks stay within their budget", "[memory][pool]") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    vtier::random_source random{seed};
    const std::size_t budget = 64_KiB * (1 + random.below(40)) + 256 * random.below(3);
    const device on{{.memory_bytes = 4_MiB, .name = "device"}};
    const vtier::hbm<device> memory{
        on, {.budget = budget, .grows = random.below(4) != 0, .granule_bytes = 4_KiB << random.below(5)}};
    const std::size_t chunk = random.below(3) == 0 ? 8_KiB << random.below(5) : 0;
    {
      const vtier::pool pool{memory, {.growth_bytes = 256 + random.below(100'000), .chunk_bytes = chunk}};
      std::map<std::uintptr_t, std::size_t> live;
      std::size_t used = 0;
      for (int step = 0; step < 400; ++step) {
        const std::uint64_t choice = random.below(20);
        if (choice < 11) {
          const std::size_t size = 1 + random.below(random.below(4) == 0 ? budget / 2 : budget / 16);
          const std::size_t alignment = std::size_t{1} << random.below(14);
          try {
            const auto at = reinterpret_cast<std::uintptr_t>(pool.allocate(size, alignment));
            REQUIRE(at % alignment == 0);
            const auto next = live.lower_bound(at);
            REQUIRE((next == live.end() || at + size <= next->first));
            REQUIRE((next == live.begin() || std::prev(next)->first + std::prev(next)->second <= at));
            std::memset(reinterpret_cast<void*>(at), step, size);
            live.emplace(at, size);
            used += vtier::align_up(size, 256);
          } catch (const vtier::out_of_memory& e) {
            REQUIRE(e.free_bytes() == pool.free_bytes());
            REQUIRE(used > 0);
          }
        } else if (choice < 19 && !live.empty()) {
          const auto one = std::next(live.begin(), static_cast<std::ptrdiff_t>(random.below(live.size())));
          pool.deallocate(reinterpret_cast<void*>(one->first), one->second, 1);
          used -= vtier::align_up(one->second, 256);
          live.erase(one);
        } else if (choice == 19) {
          const std::size_t before = pool.reserved_bytes();
          const std::size_t trimmed = pool.trim();
          REQUIRE(trimmed == before - pool.reserved_bytes());
        }
        REQUIRE(pool.used_bytes() == used);
        REQUIRE(pool.reserved_bytes() >= used);
        REQUIRE(pool.reserved_bytes() <= budget);
        REQUIRE(4_MiB - on.memory().free_bytes <= vtier::align_up(budget, 64_KiB));
      }
      for (const auto& [at, size] : live) pool.deallocate(reinterpret_cast<void*>(at), size, 1);
      const std::size_t all = vtier::align_down(budget, 256);
      void* const whole = pool.allocate(all, 256);  // nothing is lost, nothing stays apart
      pool.deallocate(whole, all, 256);
      static_cast<void>(pool.trim());
      CHECK(pool.reserved_bytes() == 0);
    }
    CHECK(on.memory().free_bytes == 4_MiB);
    CHECK(memory.free_bytes() == budget);
  }
}

TEST_CASE("several threads use a pool as one does", "[memory][pool]") {
  const vtier::pool pool{vtier::numa{{.budget = 16_MiB}}, {.growth_bytes = 4_KiB}};
  std::atomic<int> overlaps{0};
  std::atomic<int> waiting{4};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      vtier::random_source random{t};
      struct held {
        unsigned* pointer;
        std::size_t size;
      };
      std::vector<held> live;
      --waiting;
      while (waiting > 0) std::this_thread::yield();
      for (int step = 0; step < 300'000; ++step) {
        if (live.size() < 20) {
          const std::size_t size = 4 + random.below(20'000);
          live.push_back({static_cast<unsigned*>(pool.allocate(size, 256)), size});
          *live.back().pointer = t;
        } else {
          std::swap(live[random.below(live.size())], live.back());
          if (*live.back().pointer != t) ++overlaps;
          pool.deallocate(live.back().pointer, live.back().size, 256);
          live.pop_back();
        }
      }
      for (const held& one : live) pool.deallocate(one.pointer, one.size, 256);
    });
  }
  for (auto& thread : threads) thread.join();
  CHECK(overlaps == 0);
  CHECK(pool.used_bytes() == 0);
  CHECK(pool.live_count() == 0);
}

#if VTIER_HAS_ADDRESS_SANITIZER
TEST_CASE("under AddressSanitizer a use after free is reported in pooled memory too", "[memory][pool]") {
  const vtier::pool pool{vtier::numa{{.budget = 1_MiB}}};
  auto* const p = static_cast<volatile char*>(pool.allocate(1'000, 16));
  p[999] = 1;
  CHECK(vtier::test::in_child([&] { p[1'000] = 1; }).text.find("use-after-poison") != std::string::npos);
  pool.deallocate(const_cast<char*>(p), 1'000, 16);
  CHECK(vtier::test::in_child([&] { p[0] = 1; }).text.find("use-after-poison") != std::string::npos);
  auto* const again = static_cast<volatile char*>(pool.allocate(1'000, 16));
  again[0] = 1;
  pool.deallocate(const_cast<char*>(again), 1'000, 16);
}
#endif
