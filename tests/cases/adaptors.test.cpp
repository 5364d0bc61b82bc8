// SPDX-License-Identifier: Apache-2.0
// Adaptors of resources, several around one another: each order is a resource, and each does its part.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/device/host.hpp>
#include <vtier/memory/aligned.hpp>
#include <vtier/memory/allocation_log.hpp>
#include <vtier/memory/allocator.hpp>
#include <vtier/memory/guarded.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/limited.hpp>
#include <vtier/memory/logged.hpp>
#include <vtier/memory/numa.hpp>
#include <vtier/memory/on_failure.hpp>
#include <vtier/memory/pool.hpp>
#include <vtier/memory/resource_ref.hpp>
#include <vtier/memory/thread_safe.hpp>
#include <vtier/memory/tracked.hpp>

#include "contract/resource.hpp"
#include "support/catch.hpp"

using namespace vtier::literals;

namespace {

using device = vtier::host::device;
using memory_pool = vtier::pool<vtier::numa>;

const auto gives_up = [](std::size_t, std::size_t) { return false; };

// What was put around a device's memory is stream-ordered as long as everything is.
template <class R>
using all_around =
    vtier::limited<vtier::tracked<vtier::on_failure<vtier::aligned<vtier::thread_safe<vtier::logged<R>>>>>>;
static_assert(vtier::stream_ordered_resource<all_around<vtier::hbm<device>>>);
static_assert(vtier::host_resource<all_around<vtier::guarded<vtier::numa>>>);
static_assert(!vtier::stream_ordered_resource<all_around<vtier::numa>>);
static_assert(vtier::resource<vtier::tracked<vtier::resource_ref<vtier::memory_kind::device>>>);

template <class R>
auto wrap(const R& below, std::ostream& log, std::size_t budget) {
  return vtier::limited{
      vtier::tracked{vtier::on_failure{
          vtier::aligned{vtier::thread_safe{vtier::logged{below, log}}, {.alignment_bytes = 256}}, gives_up}},
      {.budget = budget}};
}

}  // namespace

TEST_CASE("adaptors around one another are a resource", "[cases][adaptors]") {
  SECTION("around a pool") {
    const auto make = [](std::size_t budget) {
      return vtier::limited{vtier::tracked{memory_pool{vtier::numa{{.budget = budget}}}}, {.budget = budget}};
    };
    vtier::test::check_resource(make, vtier::test::host_bytes{}, 2);
  }
  SECTION("the other way round") {
    const auto make = [](std::size_t budget) {
      return vtier::tracked{vtier::limited{vtier::numa{{.budget = 2 * budget}}, {.budget = budget}}};
    };
    vtier::test::check_resource(make, vtier::test::host_bytes{}, 1);
  }
  SECTION("all") {
    std::ostringstream log;
    const auto make = [&](std::size_t budget) { return wrap(vtier::numa{{.budget = budget}}, log, budget); };
    vtier::test::check_resource(make, vtier::test::host_bytes{}, 1);
    vtier::test::check_slab(make, vtier::test::host_bytes{});
  }
  SECTION("all, guarded, behind a type that is forgotten") {
    std::ostringstream log;
    const auto make = [&](std::size_t budget) {
      return vtier::resource_ref{wrap(vtier::guarded{vtier::numa{{.budget = 4 * budget + 64_MiB}}}, log, budget)};
    };
    vtier::test::check_resource(make, vtier::test::host_bytes{}, 1);
  }
  SECTION("all around a device's memory") {
    const device on;
    std::ostringstream log;
    const auto make = [&](std::size_t budget) { return wrap(vtier::hbm<device>{on, {.budget = budget}}, log, budget); };
    vtier::test::check_resource(make, vtier::test::device_bytes<device>{on}, 1);
    const auto memory = make(64_KiB);
    const auto stream = on.make_stream();
    void* const p = memory.allocate(stream, 1'000, 16);
    CHECK(memory.used_bytes() == 1'000);
    CHECK(memory.upstream().usage().live_bytes == 1'000);
    CHECK(memory.free_bytes() == 64_KiB - 1_KiB);
    memory.deallocate(stream, p, 1'000, 16);
    CHECK(memory.free_bytes() == 64_KiB);
    on.synchronize(stream);
  }
}

TEST_CASE("a refusal in the middle leaves nothing charged anywhere", "[cases][adaptors]") {
  const memory_pool pool{vtier::numa{{.budget = 64_KiB}}};
  const vtier::tracked account{pool};
  const vtier::limited memory{account, {.budget = 1_MiB}};
  CHECK_THROWS_AS(memory.allocate(128_KiB, 16), vtier::out_of_memory);  // the pool says no
  CHECK_THROWS_AS(memory.allocate(2_MiB, 16), vtier::out_of_memory);    // the cap says no
  CHECK_THROWS_AS(memory.allocate(1, 24), vtier::usage_error);          // no alignment
  CHECK(memory.allocate(0, 16) == nullptr);
  memory.deallocate(nullptr, 100, 16);
  CHECK(memory.used_bytes() == 0);
  CHECK(account.usage().total_count == 0);
  CHECK(pool.peak_bytes() == 0);
}

TEST_CASE("a size that wraps in the middle is refused under its own number", "[cases][adaptors]") {
  constexpr std::size_t most = (std::numeric_limits<std::size_t>::max)();
  const vtier::limited memory{
      vtier::aligned{vtier::guarded{vtier::numa{{.budget = 64_KiB}}}, {.alignment_bytes = 4096, .round_size = true}},
      {.budget = most}};
  for (const std::size_t size : {most, most - 4095, most - 8192, most - 4096 - 64}) {
    CAPTURE(size);
    try {
      static_cast<void>(memory.allocate(size, 16));
      FAIL("a size that wraps was given");
    } catch (const vtier::out_of_memory& e) {
      CHECK(e.asked_bytes() >= size);
    }
    CHECK(memory.used_bytes() == 0);
  }
}

TEST_CASE("a log around a cap shows the refusal, and what was freed for the second chance", "[cases][adaptors]") {
  std::ostringstream out;
  std::vector<void*> cache;
  const vtier::limited share{memory_pool{vtier::numa{{.budget = 4_MiB}}}, {.budget = 1_MiB}};
  const vtier::logged log{share, out};
  const vtier::on_failure memory{log, [&](std::size_t, std::size_t) {
                                   if (cache.empty()) return false;
                                   log.deallocate(cache.back(), 512_KiB, 16);
                                   cache.pop_back();
                                   return true;
                                 }};
  cache.push_back(memory.allocate(512_KiB, 16));
  void* const p = memory.allocate(768_KiB, 16);
  log.flush();
  std::vector<std::pair<vtier::allocation_action, std::size_t>> seen;
  for (const auto& r : vtier::parse_allocation_log(out.str())) seen.emplace_back(r.action, r.size_bytes);
  using action = vtier::allocation_action;
  CHECK(seen == std::vector<std::pair<action, std::size_t>>{{action::allocate, 512_KiB},
                                                            {action::allocate_failure, 768_KiB},
                                                            {action::free, 512_KiB},
                                                            {action::allocate, 768_KiB}});
  memory.deallocate(p, 768_KiB, 16);
  CHECK(share.used_bytes() == 0);
}

TEST_CASE("another thread gives what this one waits for", "[cases][adaptors]") {
  const vtier::limited share{memory_pool{vtier::numa{{.budget = 1_MiB}}}, {.budget = 64_KiB}};
  void* const held = share.allocate(64_KiB, 16);
  const vtier::on_failure memory{share, [&](std::size_t, std::size_t attempt) {
                                   // No lock is held here: another thread gets through.
                                   std::thread{[&] { share.deallocate(held, 64_KiB, 16); }}.join();
                                   return attempt == 1;
                                 }};
  void* const p = memory.allocate(1'000, 16);
  CHECK(share.used_bytes() == 1'000);
  memory.deallocate(p, 1'000, 16);
}

TEST_CASE("a container outlives every handle of what it lives in", "[cases][adaptors]") {
  std::vector<vtier::outstanding_allocation> leaked;
  using memory_type = vtier::tracked<vtier::limited<memory_pool>>;
  std::optional<std::vector<int, vtier::allocator<int, memory_type>>> numbers;
  {
    const memory_type memory{vtier::limited{memory_pool{vtier::numa{{.budget = 1_MiB}}}, {.budget = 512_KiB}},
                             {.role = "numbers", .on_leak = [&](const auto& list) { leaked = list; }}};
    numbers.emplace(1'000, 7, memory);
  }
  numbers->resize(10'000, 8);
  CHECK((numbers->front() == 7 && numbers->back() == 8));
  numbers.reset();
  CHECK(leaked.empty());
}
