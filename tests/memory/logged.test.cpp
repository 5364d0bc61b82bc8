// SPDX-License-Identifier: Apache-2.0
#include <vtier/memory/logged.hpp>

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/random_source.hpp>
#include <vtier/device/host.hpp>
#include <vtier/memory/allocation_log.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/numa.hpp>
#include <vtier/memory/pool.hpp>

#include "contract/resource.hpp"
#include "support/catch.hpp"
#include "support/scratch_directory.hpp"

using namespace vtier::literals;

namespace {

using device = vtier::host::device;
using action = vtier::allocation_action;

static_assert(vtier::host_resource<vtier::logged<vtier::numa>>);
static_assert(vtier::stream_ordered_resource<vtier::logged<vtier::hbm<device>>>);

std::uint64_t number(const void* p) { return reinterpret_cast<std::uintptr_t>(p); }

}  // namespace

TEST_CASE("a logged resource is a resource", "[memory][logged]") {
  std::ostringstream out;
  const auto make = [&](std::size_t budget) { return vtier::logged{vtier::numa{{.budget = budget}}, out}; };
  vtier::test::check_resource(make, vtier::test::host_bytes{}, 1);
  vtier::test::check_slab(make, vtier::test::host_bytes{});
}

TEST_CASE("a log read back is the calls that were made", "[memory][logged]") {
  std::ostringstream out;
  std::int64_t now = 100;
  const vtier::logged memory{
      vtier::pool{vtier::numa{{.budget = 1_MiB}}}, out, {.time_us_of_day = [&] { return now++; }}};
  const auto self = static_cast<std::uint64_t>(::gettid());
  void* const p = memory.allocate(100, 16);
  void* const q = memory.allocate(5'000, 256);
  CHECK(memory.allocate(0, 16) == nullptr);
  memory.deallocate(nullptr, 0, 16);
  CHECK_THROWS_AS(memory.allocate(2_MiB, 16), vtier::out_of_memory);
  memory.deallocate(p, 100, 16);
  memory.deallocate(q, 5'000, 256);
  CHECK(out.str().empty());  // all of it is in the buffer
  memory.flush();
  const std::vector<vtier::allocation_record> made{
      {self, 100, action::allocate, number(p), 100, 0},   {self, 101, action::allocate, number(q), 5'000, 0},
      {self, 102, action::allocate_failure, 0, 2_MiB, 0}, {self, 103, action::free, number(p), 100, 0},
      {self, 104, action::free, number(q), 5'000, 0},
  };
  CHECK(vtier::parse_allocation_log(out.str()) == made);
  CHECK(memory.notes().empty());
}

TEST_CASE("streams are numbered in the order of first use", "[memory][logged]") {
  const device on;
  std::ostringstream out;
  const vtier::logged memory{vtier::hbm<device>{on, {.budget = 1_MiB}}, out};
  const auto first = on.make_stream();
  const auto second = on.make_stream();
  void* const p = memory.allocate(second, 100, 16);
  void* const q = memory.allocate(first, 100, 16);
  memory.deallocate(second, q, 100, 16);
  memory.deallocate(p, 100, 16);
  CHECK_THROWS_AS(memory.allocate(first, 2_MiB, 16), vtier::out_of_memory);
  memory.flush();
  const auto records = vtier::parse_allocation_log(out.str());
  REQUIRE(records.size() == 5);
  std::vector<std::uint64_t> streams;
  for (const auto& r : records) streams.push_back(r.stream);
  CHECK(streams == std::vector<std::uint64_t>{1, 2, 1, 0, 2});
  on.synchronize(first);
  on.synchronize(second);
}

TEST_CASE("a log of several threads in a file replays: no address is given twice", "[memory][logged]") {
  const vtier::test::scratch_directory directory;
  const std::string path = (directory.path() / "log.csv").string();
  {
    const vtier::logged memory{vtier::pool{vtier::numa{{.budget = 4_MiB}}}, path, {.buffer_bytes = 500}};
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        vtier::random_source random{t};
        for (int i = 0; i < 500; ++i) {
          const std::size_t size = 1 + random.below(2'000);
          void* const p = memory.allocate(size, 16);
          memory.deallocate(p, size, 16);
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
  std::ifstream in{path};
  const std::string text{std::istreambuf_iterator<char>{in}, {}};
  const auto records = vtier::parse_allocation_log(text);
  CHECK(records.size() == 4'000);
  std::map<std::uint64_t, std::size_t> live;
  int wrong = 0;
  for (const auto& r : records) {
    if (r.action == action::free) {
      const auto at = live.find(r.pointer);
      if (at == live.end() || at->second != r.size_bytes)
        ++wrong;
      else
        live.erase(at);
    }
    // An address is written down after it was given, so that a free of it by then stands before.
    if (r.action == action::allocate && !live.emplace(r.pointer, r.size_bytes).second) ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(live.empty());
  ::unlink(path.c_str());
}

TEST_CASE("a log that cannot be written is an error or a note, never a failed allocation", "[memory][logged]") {
  const vtier::numa below{{.budget = 64_KiB}};
  CHECK_THROWS_AS((vtier::logged{below, std::string{"/nowhere/at/all.csv"}}), vtier::io_error);
  std::ofstream full{"/dev/full"};
  const vtier::logged memory{below, full, {.buffer_bytes = 1}};
  full.rdbuf()->pubsetbuf(nullptr, 0);
  void* const p = memory.allocate(100, 16);
  CHECK(p != nullptr);
  memory.deallocate(p, 100, 16);
  full.setstate(std::ios::badbit);
  memory.flush();
  REQUIRE(memory.notes().size() == 1);
  CHECK(memory.notes()[0].find("not complete") != std::string::npos);
  CHECK(memory.free_bytes() == 64_KiB);
}
