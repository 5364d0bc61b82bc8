// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/tracked.hpp>

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/device/host.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/numa.hpp>
#include <vtier/memory/pool.hpp>

#include "contract/resource.hpp"
#include "support/catch.hpp"
#include "support/death.hpp"

using namespace vtier::literals;

namespace {

using device = vtier::host::device;
using memory_pool = vtier::pool<vtier::numa>;

static_assert(vtier::host_resource<vtier::tracked<vtier::numa>>);
static_assert(!vtier::stream_ordered_resource<vtier::tracked<vtier::numa>>);
static_assert(vtier::stream_ordered_resource<vtier::tracked<vtier::hbm<device>>>);

}  // namespace

TEST_CASE("a tracked resource is a resource", "[memory][tracked]") {
  const auto make = [](std::size_t budget) { return vtier::tracked{vtier::numa{{.budget = budget}}}; };
  vtier::test::check_resource(make, vtier::test::host_bytes{}, 1);
  vtier::test::check_slab(make, vtier::test::host_bytes{});
  const device on;
  const auto make_device = [&](std::size_t budget) {
    return vtier::tracked{vtier::hbm<device>{on, {.budget = budget}}};
  };
  vtier::test::check_resource(make_device, vtier::test::device_bytes<device>{on}, 1);
}

TEST_CASE("bytes are counted by label", "[memory][tracked]") {
  const vtier::tracked any{memory_pool{vtier::numa{{.budget = 1_MiB}}}, {.role = "parameters"}};
  const auto activations = any.with_role("activations");
  CHECK(any == activations);
  CHECK(any.role() == "parameters");
  CHECK(activations.role() == "activations");
  CHECK(any.roles() == std::vector<std::string>{"activations", "parameters"});
  void* const p = any.allocate(1'000, 16);
  void* const q = activations.allocate(3'000, 16);
  void* const r = activations.allocate(500, 16);
  CHECK(any.usage().live_bytes == 4'500);
  CHECK(activations.usage("activations").live_bytes == 3'500);
  CHECK(activations.usage("activations").live_count == 2);
  any.deallocate(q, 3'000, 16);  // by another label's handle: it counts where it was taken
  CHECK(any.usage("activations").live_bytes == 500);
  CHECK(any.usage("activations").peak_bytes == 3'500);
  CHECK(any.usage("activations").total_count == 2);
  CHECK(any.usage("parameters").live_bytes == 1'000);
  CHECK(any.usage("gradients").total_count == 0);
  CHECK(any.usage().peak_bytes == 4'500);
  CHECK(any.allocate(0, 16) == nullptr);
  CHECK_THROWS_AS(any.allocate(2_MiB, 16), vtier::out_of_memory);
  CHECK_THROWS_AS(any.allocate(0, 6), vtier::usage_error);
  CHECK(any.usage().total_count == 3);
  any.deallocate(p, 1'000, 16);
  any.deallocate(r, 500, 16);
  CHECK(any.usage().live_count == 0);
  CHECK(any.outstanding().empty());
}

TEST_CASE("what was not given back is told with its label and line, in order", "[memory][tracked]") {
  std::vector<vtier::outstanding_allocation> leaked;
  int told = 0;
  const memory_pool below{vtier::numa{{.budget = 1_MiB}}};
  void* p = nullptr;
  void* q = nullptr;
  int line = 0;
  {
    std::optional memory{vtier::tracked{below, {.role = "weights", .on_leak = [&](const auto& list) {
                                                  ++told;
                                                  leaked = list;
                                                }}}};
    void* const first = memory->allocate(64, 16);
    line = __LINE__ + 1;
    q = memory->allocate(4'000, 16);
    memory->deallocate(first, 64, 16);
    p = memory->with_role("cache").allocate(200, 16);  // gets the address that came back: order is not by address
    CHECK(p < q);
    const auto list = memory->outstanding();
    REQUIRE(list.size() == 2);
    CHECK(list[0].text().find("3.9 KiB for weights from ") == 0);
    CHECK(list[0].text().find("tracked.test.cpp:" + std::to_string(line) + " at 0x") != std::string::npos);
    const auto other_handle = *memory;
    memory.reset();
    CHECK(told == 0);
  }
  CHECK(told == 1);
  REQUIRE(leaked.size() == 2);
  CHECK(leaked[0].size_bytes == 4'000);
  CHECK(leaked[0].role == "weights");
  CHECK(leaked[0].where.line == line);
  CHECK(leaked[0].pointer == q);
  CHECK(leaked[1].role == "cache");
  below.deallocate(p, 200, 16);
  below.deallocate(q, 4'000, 16);

  // A handler that throws is harmless, and nobody is told where nothing is held.
  {
    const vtier::tracked memory{below, {.on_leak = [&](const auto&) {
                                  ++told;
                                  throw std::runtime_error{"leak"};
                                }}};
    p = memory.allocate(1, 1);
  }
  CHECK(told == 2);
  below.deallocate(p, 1, 1);
  {
    const vtier::tracked memory{below, {.on_leak = [&](const auto&) { ++told; }}};
    memory.deallocate(memory.allocate(1, 1), 1, 1);
  }
  CHECK(told == 2);
}

TEST_CASE("an account is kept in stream order too", "[memory][tracked]") {
  const device on;
  const vtier::tracked memory{vtier::hbm<device>{on, {.budget = 1_MiB}}, {.role = "hbm"}};
  const auto stream = on.make_stream();
  const int line = __LINE__ + 1;
  void* const p = memory.allocate(stream, 1'000, 16);
  CHECK(memory.usage("hbm").live_bytes == 1'000);
  CHECK(memory.outstanding().at(0).where.line == line);
  memory.deallocate(stream, p, 1'000, 16);
  CHECK(memory.usage("hbm").live_bytes == 0);
  CHECK(memory.allocate(stream, 0, 16) == nullptr);
  on.synchronize(stream);
}

TEST_CASE("second frees, foreign pointers and wrong sizes are told apart", "[memory][tracked]") {
  const vtier::tracked memory{memory_pool{vtier::numa{{.budget = 64_KiB}}}, {.role = "weights"}};
  void* const p = memory.allocate(512, 16);
  int foreign = 0;
  const auto twice = vtier::test::in_child([&] {
    memory.deallocate(p, 512, 16);
    memory.deallocate(p, 512, 16);
  });
  CHECK(twice.asserted("given back twice: 512 B for weights from"));
  CHECK(twice.asserted("tracked.test.cpp"));
  CHECK(vtier::test::in_child([&] { memory.deallocate(&foreign, 4, 4); }).asserted("a foreign pointer was given back"));
  CHECK(
      vtier::test::in_child([&] { memory.deallocate(p, 511, 16); }).asserted("came back as 511 bytes, asked were 512"));
  CHECK(vtier::test::in_child([&] {  // given again in between: no second free
          memory.deallocate(p, 512, 16);
          void* const again = memory.allocate(512, 16);
          memory.deallocate(again, 512, 16);
          return again == p;
        })
            .exit_status == 0);
  memory.deallocate(p, 512, 16);
}
