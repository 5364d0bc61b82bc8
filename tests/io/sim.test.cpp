// SPDX-License-Identifier: Apache-2.0
// The simulated drive and its engine: bytes, rules, faults.

#include <vtier/io/sim.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "support/catch.hpp"

#include <vtier/core/error.hpp>
#include <vtier/io/blocking.hpp>

namespace {

using vtier::file_completion;
using vtier::file_operation;
using vtier::sim::drive;
using vtier::sim::drive_options;
using vtier::sim::engine;
using vtier::sim::fault;
using vtier::sim::world;

struct scene {
  explicit scene(std::uint64_t seed = 1, drive_options options = {})
      : machine{std::make_shared<world>(seed)}, on{machine, std::move(options)} {}
  [[nodiscard]] std::string said() const {
    std::string all;
    for (const auto& v : machine->violations()) all += v + "\n";
    return all;
  }
  std::shared_ptr<world> machine;
  drive on;
};

/// Memory as a drive wants it.
struct memory {
  explicit memory(std::size_t size) : bytes{static_cast<std::byte*>(std::aligned_alloc(4096, size))}, size_bytes{size} {
    for (std::size_t i = 0; i < size; ++i) bytes[i] = std::byte{};
  }
  memory(const memory&) = delete;
  memory& operator=(const memory&) = delete;
  ~memory() { std::free(bytes); }
  [[nodiscard]] std::span<std::byte> span() const { return {bytes, size_bytes}; }
  std::byte* bytes;
  std::size_t size_bytes;
};

std::vector<file_completion> all_of(engine& from) {
  std::vector<file_completion> result;
  std::array<file_completion, 4> some;
  while (from.in_flight() > 0) {
    from.wait(1'000'000);
    const std::size_t count = from.reap(some);
    result.insert(result.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count));
  }
  return result;
}

void submit(engine& to, const vtier::file_request& request) {
  while (!to.try_submit(request)) to.wait(1000);
}

}  // namespace

TEST_CASE("simulated drive: what is written comes back, short transfers and interruptions or not") {
  for (const double share : {0.0, 0.02}) {
    std::size_t told = 0;
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
      scene s{seed};
      const int file = s.on.open(65536);
      s.on.reserve(file, 65536);
      engine moves{s.on};
      const memory from{65536};
      const memory to{65536};
      for (std::size_t i = 0; i < 65536; ++i) from.bytes[i] = static_cast<std::byte>(i * 7 + i / 256 + seed);
      s.machine->fault_share(share);
      try {
        const vtier::io::blocking_options chunks{.chunk_bytes = 8192, .alignment_bytes = 512};
        vtier::io::write_exact(moves, file, 0, from.span(), "file", chunks);
        vtier::io::read_exact(moves, file, 0, to.span(), "file", chunks);
        CHECK(std::equal(from.bytes, from.bytes + 65536, to.bytes));
      } catch (const vtier::io_error& e) {
        ++told;
        CHECK(share > 0.0);
        CHECK(std::string{e.what()}.find("wanted") != std::string::npos);
      }
      s.on.close(file);
      CAPTURE(seed, s.said());
      REQUIRE(s.said() == "");
    }
    CHECK((share > 0.0) == (told > 0));
  }
}

TEST_CASE("simulated drive: completions come in any order, each once") {
  std::set<std::vector<std::uint64_t>> orders;
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    scene s{seed};
    const int file = s.on.open(65536);
    s.on.reserve(file, 65536);
    engine moves{s.on};
    const memory bytes{4096};
    for (std::uint64_t tag = 1; tag <= 8; ++tag) {
      submit(moves, {file, file_operation::write, 4096 * tag, bytes.span(), tag});
    }
    std::vector<std::uint64_t> order;
    for (const auto& done : all_of(moves)) {
      CHECK(done.result == 4096);
      order.push_back(done.tag);
    }
    CHECK(std::set<std::uint64_t>(order.begin(), order.end()).size() == 8);
    orders.insert(order);
    s.on.close(file);
    REQUIRE(s.said() == "");
  }
  CHECK(orders.size() > 30);
}

TEST_CASE("simulated drive: transfers that break its rules are refused and told (VO-A05)") {
  drive_options strict;
  strict.offset_alignment_bytes = 4096;
  strict.memory_alignment_bytes = 512;
  scene s{1, strict};
  const int file = s.on.open(65536);
  s.on.reserve(file, 16384);
  engine moves{s.on};
  const memory bytes{16384};
  const auto refused = [&](std::size_t offset, std::size_t from, std::size_t size, const char* why) {
    const std::size_t before = s.machine->violations().size();
    submit(moves, {file, file_operation::write, offset, bytes.span().subspan(from, size), 1});
    const auto done = all_of(moves);
    REQUIRE(done.size() == 1);
    CHECK(done.front().result == -EINVAL);
    REQUIRE(s.machine->violations().size() == before + 1);
    CHECK(s.machine->violations().back().find(why) != std::string::npos);
  };
  refused(512, 0, 4096, "alignment");
  refused(0, 0, 100, "alignment");
  refused(0, 4, 4096, "alignment");
  refused(16384, 0, 4096, "reserved");
  submit(moves, {file, file_operation::write, 12288, bytes.span().first(4096), 1});
  CHECK(all_of(moves).front().result == 4096);
  s.on.close(file);
}

TEST_CASE("simulated drive: memory belongs to the request until its completion was reaped") {
  for (const bool reading : {true, false}) {
    for (const bool patient : {true, false}) {
      scene s{5};
      const int file = s.on.open(8192);
      s.on.reserve(file, 8192);
      engine moves{s.on};
      const memory bytes{4096};
      s.machine->writes(bytes.bytes, 4096);
      submit(moves, {file, reading ? file_operation::read : file_operation::write, 0, bytes.span(), 1});
      s.machine->pass(1'000'000'000);  // it is over, but not reaped
      if (patient) CHECK(all_of(moves).size() == 1);
      s.machine->writes(bytes.bytes, 1);
      CAPTURE(reading, patient, s.said());
      CHECK((s.said().find("a race") != std::string::npos) == !patient);
      s.on.close(file);
    }
  }
}

TEST_CASE("simulated drive: faults and the capacity are io_errors that say where") {
  drive_options small;
  small.capacity_bytes = 8192;
  small.name = "tiny";
  scene s{1, small};
  s.machine->fail_at(fault::file_open, 1);
  CHECK_THROWS_AS(s.on.open(4096), vtier::io_error);
  const int file = s.on.open(65536);
  s.machine->fail_at(fault::reservation, 1);
  CHECK_THROWS_AS(s.on.reserve(file, 4096), vtier::io_error);
  s.on.reserve(file, 8192);
  s.on.reserve(file, 4096);  // it has them
  CHECK(s.on.used_bytes() == 8192);
  try {
    s.on.reserve(file, 12288);
    FAIL("nothing was thrown");
  } catch (const vtier::io_error& e) {
    CHECK(e.code().value() == ENOSPC);
    CHECK(std::string{e.what()}.find("tiny") != std::string::npos);
  }
  s.on.close(file);
  CHECK(s.on.used_bytes() == 0);
  CHECK(s.on.file_count() == 0);
}

TEST_CASE("simulated drive: an engine that goes has ended its transfers, and moves with them") {
  scene s;
  const int file = s.on.open(65536);
  s.on.reserve(file, 65536);
  const memory bytes{4096};
  {
    engine first{s.on};
    for (std::uint64_t tag = 1; tag <= 4; ++tag) {
      submit(first, {file, file_operation::write, 4096 * tag, bytes.span(), tag});
    }
    engine second{std::move(first)};
    CHECK(second.in_flight() == 4);
    engine third{s.on};
    third = std::move(second);
    CHECK(third.in_flight() == 4);
  }
  s.on.close(file);  // nothing is in flight
  CHECK(s.said() == "");
}

TEST_CASE("simulated drive: with a rate for all requests together they take turns, in each direction by itself") {
  const auto time_of = [](std::size_t reads, std::size_t writes) {
    drive_options options;
    options.latency_ns = 100'000.0;
    options.read_bytes_per_ns = 1.0;
    options.write_bytes_per_ns = 0.5;
    const auto machine = std::make_shared<world>(vtier::sim::world_options{.disorder = 0.0});
    const drive on{machine, options};
    const int file = on.open(65536);
    on.reserve(file, 65536);
    memory room{8 * 8192};
    engine io{on};
    const std::int64_t began = machine->now_ns();
    for (std::size_t i = 0; i < reads + writes; ++i) {
      const auto way = i < reads ? file_operation::read : file_operation::write;
      submit(io, {file, way, i * 8192, room.span().subspan(i * 8192, 8192), i});
    }
    static_cast<void>(machine->run_until([] { return false; }));
    std::array<file_completion, 8> all;
    CHECK(io.reap(all) == reads + writes);
    const std::int64_t took = machine->now_ns() - began;
    on.close(file);
    return took;
  };
  const auto about = [](std::int64_t took, std::int64_t ns) { return took > ns && took < ns + 32'000; };
  CHECK(about(time_of(1, 0), 100'000 + 8192));
  CHECK(about(time_of(4, 0), 100'000 + 4 * 8192));  // one latency, which passes beside the others' bytes
  CHECK(about(time_of(0, 4), 100'000 + 4 * 16384));
  CHECK(about(time_of(4, 2), 100'000 + 4 * 8192));
}
