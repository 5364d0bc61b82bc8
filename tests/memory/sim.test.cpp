// SPDX-License-Identifier: Apache-2.0
// Memory in files of a simulated drive.

#include <vtier/memory/sim.hpp>

#include <cerrno>
#include <cstddef>
#include <memory>

#include "contract/resource.hpp"
#include "support/catch.hpp"

#include <vtier/core/bytes.hpp>
#include <vtier/core/error.hpp>

namespace {

using namespace vtier::literals;

struct scene {
  std::shared_ptr<vtier::sim::world> machine = std::make_shared<vtier::sim::world>(1);
  vtier::sim::drive on{machine};
};

}  // namespace

TEST_CASE("a simulated file is a resource", "[memory]") {
  const scene s;
  const auto make = [&](std::size_t budget) { return vtier::sim::file{s.on, {.budget = budget}}; };
  const vtier::test::host_bytes bytes;
  vtier::test::check_zero_bytes(make);
  vtier::test::check_budget(make);
  vtier::test::check_handles(make);
  vtier::test::check_no_aliasing(make, bytes, 2);
  vtier::test::check_slab(make, bytes);
  CHECK(s.on.file_count() == 0);
  CHECK(s.on.used_bytes() == 0);
  CHECK(s.machine->violations().empty());
}

TEST_CASE("the drive's rules and its fullness reach the slab", "[memory]") {
  const auto machine = std::make_shared<vtier::sim::world>(1);
  vtier::sim::drive_options strict;
  strict.capacity_bytes = 64_KiB;
  strict.offset_alignment_bytes = 4096;
  strict.memory_alignment_bytes = 512;
  const vtier::sim::drive on{machine, strict};
  const vtier::sim::file memory{on, {.budget = 100'000}};
  {
    auto slab = memory.make_slab();
    CHECK(slab.size_bytes() == 98'304);
    CHECK(slab.properties().lazy);
    CHECK(slab.properties().offset_alignment_bytes == 4096);
    CHECK(slab.properties().memory_alignment_bytes == 512);
    slab.commit(64_KiB);
    CHECK(on.used_bytes() == 64_KiB);
    try {
      slab.commit(68_KiB);
      FAIL("nothing was thrown");
    } catch (const vtier::io_error& e) {
      CHECK(e.code().value() == ENOSPC);
    }
    vtier::notes remarks;
    auto moves = slab.make_engine(remarks);
    REQUIRE(moves);
    CHECK(moves->name() == "sim");
    CHECK(slab.locate(8192).offset_bytes == 8192);
    slab.shrink(16_KiB);
    CHECK(on.used_bytes() == 16_KiB);
    slab.shrink(64_KiB);
    CHECK(on.used_bytes() == 16_KiB);
    slab.commit(32_KiB);
    CHECK(on.used_bytes() == 32_KiB);
  }
  CHECK(on.used_bytes() == 0);
  CHECK(memory.free_bytes() == 100'000);
}
