// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/aligned.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include <vtier/core/bytes.hpp>
#include <vtier/device/host.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/numa.hpp>
#include <vtier/memory/pool.hpp>

#include "contract/resource.hpp"
#include "support/catch.hpp"
#include "support/scratch_directory.hpp"

using namespace vtier::literals;

namespace {

using device = vtier::host::device;

static_assert(vtier::host_resource<vtier::aligned<vtier::numa>>);
static_assert(vtier::stream_ordered_resource<vtier::aligned<vtier::hbm<device>>>);

constexpr std::size_t most = (std::numeric_limits<std::size_t>::max)();

}  // namespace

TEST_CASE("an aligned resource is a resource", "[memory][aligned]") {
  SECTION("addresses") {
    const auto make = [](std::size_t budget) {
      return vtier::aligned{vtier::numa{{.budget = budget}}, {.alignment_bytes = 64_KiB}};
    };
    vtier::test::check_resource(make, vtier::test::host_bytes{}, 1);
  }
  SECTION("addresses and sizes") {
    const auto make = [](std::size_t budget) {
      return vtier::aligned{vtier::numa{{.budget = budget}}, {.alignment_bytes = 4_KiB, .round_size = true}};
    };
    vtier::test::check_resource(make, vtier::test::host_bytes{}, 1);
    vtier::test::check_slab(make, vtier::test::host_bytes{});
  }
  SECTION("files") {
    const vtier::test::scratch_directory directory;
    const auto make = [&](std::size_t budget) {
      return vtier::aligned{vtier::mapped_file{directory.path(), {.budget = budget}}, {.round_size = true}};
    };
    vtier::test::check_slab(make, vtier::test::host_bytes{});
  }
  SECTION("hbm") {
    const device on;
    const auto make = [&](std::size_t budget) {
      return vtier::aligned{vtier::hbm<device>{on, {.budget = budget}}, {.alignment_bytes = 256, .round_size = true}};
    };
    vtier::test::check_resource(make, vtier::test::device_bytes<device>{on}, 1);
    vtier::test::check_slab(make, vtier::test::device_bytes<device>{on});
  }
}

TEST_CASE("every address is a multiple of the alignment", "[memory][aligned]") {
  for (const std::size_t alignment : {4_KiB, 64_KiB, 2_MiB}) {
    CAPTURE(alignment);
    const vtier::pool below{vtier::numa{{.budget = 16_MiB}}};
    const vtier::aligned memory{below, {.alignment_bytes = alignment}};
    CHECK(memory.alignment_bytes() == alignment);
    void* const first = memory.allocate(1, 1);
    void* const second = memory.allocate(100, 16);
    CHECK(reinterpret_cast<std::uintptr_t>(first) % alignment == 0);
    CHECK(reinterpret_cast<std::uintptr_t>(second) % alignment == 0);
    void* const larger = memory.allocate(100, 4_MiB);  // what is asked beyond it is given as well
    CHECK(reinterpret_cast<std::uintptr_t>(larger) % 4_MiB == 0);
    memory.deallocate(first, 1, 1);
    memory.deallocate(second, 100, 16);
    memory.deallocate(larger, 100, 4_MiB);
    CHECK(memory.free_bytes() == 16_MiB);
  }
}

TEST_CASE("sizes are rounded where that is asked, and come back as they were given", "[memory][aligned]") {
  const vtier::pool below{vtier::numa{{.budget = 64_KiB}}};
  const vtier::aligned memory{below, {.alignment_bytes = 4_KiB, .round_size = true}};
  void* const first = memory.allocate(1, 1);
  CHECK(below.used_bytes() >= 4_KiB);
  void* const second = memory.allocate(4_KiB + 1, 1);
  CHECK(below.used_bytes() >= 12_KiB);
  memory.deallocate(second, 4_KiB + 1, 1);
  memory.deallocate(first, 1, 1);
  CHECK(below.used_bytes() == 0);

  // numa checks the size that it gets back by its budget
  const vtier::numa pages{{.budget = 64_KiB}};
  const vtier::aligned large{pages, {.alignment_bytes = 16_KiB, .round_size = true}};
  void* const p = large.allocate(1, 1);
  CHECK(pages.free_bytes() == 48_KiB);
  large.deallocate(p, 1, 1);
  CHECK(pages.free_bytes() == 64_KiB);
}

TEST_CASE("a size that wraps when it is rounded is refused", "[memory][aligned]") {
  const vtier::aligned memory{vtier::numa{{.budget = 64_KiB, .name = "dram"}},
                              {.alignment_bytes = 2_MiB, .round_size = true}};
  for (const std::size_t size : {most, most - 1, most - 2_MiB + 2}) {
    CAPTURE(size);
    try {
      static_cast<void>(memory.allocate(size, 16));
      FAIL("a size that wraps was given");
    } catch (const vtier::out_of_memory& e) {
      CHECK(e.asked_bytes() == size);
      CHECK(std::string{e.what()}.find("64 bits") != std::string::npos);
    }
  }
  try {
    static_cast<void>(memory.allocate(1, 16));
    FAIL("2 MiB of 64 KiB were given");
  } catch (const vtier::out_of_memory& e) {
    const std::string text = e.what();
    CAPTURE(text);
    CHECK(e.asked_bytes() == 1);
    CHECK(e.free_bytes() == 64_KiB);
    CHECK(text.find("multiples of 2 MiB that is 2 MiB") != std::string::npos);
  }
  CHECK(memory.free_bytes() == 64_KiB);
}

TEST_CASE("an alignment that nobody can give is an error", "[memory][aligned]") {
  const vtier::numa below{{.budget = 64_KiB}};
  CHECK_THROWS_AS((vtier::aligned{below, {.alignment_bytes = 48}}), vtier::usage_error);
  CHECK_THROWS_AS((vtier::aligned{below, {.alignment_bytes = 0}}), vtier::usage_error);
  const device on;
  const vtier::aligned memory{vtier::hbm<device>{on, {.budget = 64_KiB}}, {}};
  CHECK_THROWS_AS(memory.allocate(1, 1), vtier::usage_error);
  const auto stream = on.make_stream();
  CHECK_THROWS_AS(memory.allocate(stream, 1, 1), vtier::usage_error);
  CHECK(memory.free_bytes() == 64_KiB);
  const vtier::aligned far{below, {.alignment_bytes = 1_TiB}};
  CHECK_THROWS_AS(far.make_slab(), vtier::usage_error);
  CHECK(below.free_bytes() == 64_KiB);
}
