// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/guarded.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/device/host.hpp>
#include <vtier/memory/allocator.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/limited.hpp>
#include <vtier/memory/numa.hpp>
#include <vtier/memory/pool.hpp>

#include "contract/resource.hpp"
#include "support/catch.hpp"
#include "support/death.hpp"

using namespace vtier::literals;

namespace {

using memory_pool = vtier::pool<vtier::numa>;

static_assert(vtier::host_resource<vtier::guarded<memory_pool>>);

template <class R>
concept can_be_guarded = requires {
  typename vtier::guarded<R>;
};
static_assert(can_be_guarded<vtier::numa> && !can_be_guarded<vtier::hbm<vtier::host::device>>);

}  // namespace

TEST_CASE("a guarded resource is a resource", "[memory][guarded]") {
  const auto make = [](std::size_t budget) {  // the guards are not counted against the cap
    return vtier::limited{vtier::guarded{vtier::numa{{.budget = 4 * budget + 64_MiB}}}, {.budget = budget}};
  };
  vtier::test::check_resource(make, vtier::test::host_bytes{}, 1);
  const auto make_bare = [](std::size_t budget) { return vtier::guarded{vtier::numa{{.budget = budget}}}; };
  vtier::test::check_zero_bytes(make_bare);
  vtier::test::check_handles(make_bare);
  vtier::test::check_threads(make_bare);
  const auto memory = make_bare(1_MiB);
  CHECK(memory.make_slab().size_bytes() == 1_MiB);  // without guards
}

TEST_CASE("memory is filled when it is given and when it is returned", "[memory][guarded]") {
  const vtier::numa pages{{.budget = 1_MiB}};
  const memory_pool below{pages};
  const vtier::guarded memory{below};
  auto* const p = static_cast<unsigned char*>(memory.allocate(1'000, 16));
  int fresh = 0;
  for (std::size_t i = 0; i < 1'000; ++i) fresh += p[i] == 0xCD ? 1 : 0;
  CHECK(fresh == 1'000);
  memory.deallocate(p, 1'000, 16);
  int freed = 0;  // the pool still holds the pages
  for (std::size_t i = 0; i < 1'000; ++i) freed += p[i] == 0xDD ? 1 : 0;
  CHECK(freed == 1'000);
  for (const std::size_t alignment : {1_B, 64_B, 4_KiB}) {
    void* const q = memory.allocate(10, alignment);
    CHECK(reinterpret_cast<std::uintptr_t>(q) % alignment == 0);
    memory.deallocate(q, 10, alignment);
  }
  CHECK(below.used_bytes() == 0);
  std::vector<int, vtier::allocator<int, vtier::guarded<memory_pool>>> v(100, 5, memory);
  v.resize(1'000);
  CHECK(v.front() == 5);
}

TEST_CASE("what a program does wrong with its bytes is told", "[memory][guarded]") {
  // No pool: its pages are kept from forked children.
  const vtier::guarded memory{vtier::numa{{.budget = 1_MiB}}};
  auto* const p = static_cast<unsigned char*>(memory.allocate(100, 16));
  const auto child = [](const auto& wrong) { return vtier::test::in_child(wrong); };
  for (const int at : {100, 101, 163}) {
    CAPTURE(at);
    CHECK(child([&] {
            p[at] = 0;
            memory.deallocate(p, 100, 16);
          }).asserted("bytes behind a guarded allocation"));
  }
  for (const int at : {-1, -64}) {
    CAPTURE(at);
    CHECK(child([&] {
            p[at] = 0;
            memory.deallocate(p, 100, 16);
          }).asserted("bytes before a guarded allocation"));
  }
  CHECK(child([&] { memory.deallocate(p, 99, 16); }).asserted("another size"));
  CHECK(child([&] { memory.deallocate(p, 100, 8); }).asserted("another alignment"));
  CHECK(child([&] { memory.deallocate(p + 16, 84, 16); }).asserted("does not own it, or twice"));
  CHECK(child([&] {
          memory.deallocate(p, 100, 16);
          memory.deallocate(p, 100, 16);
        }).asserted("does not own it, or twice"));
  memory.deallocate(p, 100, 16);
}

TEST_CASE("sizes that do not fit with their guards are refused", "[memory][guarded]") {
  const vtier::guarded memory{vtier::numa{{.budget = 64_KiB}}};
  constexpr std::size_t most = (std::numeric_limits<std::size_t>::max)();
  for (const std::size_t size : {most, most - 100, 64_KiB}) {
    CAPTURE(size);
    try {
      static_cast<void>(memory.allocate(size, 16));
      FAIL("what does not fit was given");
    } catch (const vtier::out_of_memory& e) {
      CHECK(e.asked_bytes() == size);
      CHECK(std::string{e.what()}.find("with its guards") != std::string::npos);
    }
  }
  CHECK_THROWS_AS(memory.allocate(1, std::size_t{1} << 63U), vtier::out_of_memory);
  CHECK(memory.free_bytes() == 64_KiB);
}
