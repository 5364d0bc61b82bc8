// SPDX-License-Identifier: Apache-2.0
#pragma once

// What every file engine has to do. A model's test calls check_file_engine(make), where make(options) gives an engine
// for real files.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/io/engine_options.hpp>
#include <vtier/io/file_engine.hpp>
#include <vtier/io/scratch_file.hpp>

#include "support/catch.hpp"
#include "support/scratch_directory.hpp"
#include "support/signal_storm.hpp"

namespace vtier::test {

/// Zeroed bytes that begin at a page.
class page_bytes {
 public:
  explicit page_bytes(std::size_t size) : size_{size}, bytes_{static_cast<std::byte*>(::operator new(size, page))} {
    std::fill_n(bytes_, size, std::byte{});
  }
  page_bytes(const page_bytes&) = delete;
  page_bytes& operator=(const page_bytes&) = delete;
  ~page_bytes() { ::operator delete(bytes_, page); }
  std::byte* data() const { return bytes_; }
  std::size_t size() const { return size_; }
  std::span<std::byte> span() const { return {bytes_, size_}; }

 private:
  static constexpr std::align_val_t page{4096};
  std::size_t size_;
  std::byte* bytes_;
};

/// The byte that belongs at a place of a file; differs from place to place also over whole blocks.
inline std::byte file_byte(std::size_t at, std::uint64_t salt) {
  const std::uint64_t mixed = (at + salt * 131U) * 0x9E3779B97F4A7C15U;
  return static_cast<std::byte>(mixed >> 56U);
}

inline void fill_bytes(std::span<std::byte> memory, std::uint64_t salt) {
  for (std::size_t i = 0; i < memory.size(); ++i) memory[i] = file_byte(i, salt);
}

inline std::size_t count_wrong(std::span<const std::byte> memory, std::uint64_t salt) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < memory.size(); ++i) wrong += memory[i] != file_byte(i, salt) ? 1U : 0U;
  return wrong;
}

inline constexpr std::int64_t long_wait_ns = 60'000'000'000;

/// Submits one request to an idle engine and gives its result.
template <class Engine>
std::int64_t result_of(Engine& engine, const file_request& request) {
  REQUIRE(engine.in_flight() == 0);
  REQUIRE(engine.try_submit(request));
  std::array<file_completion, 2> completions;
  std::size_t count = 0;
  while (count == 0) {
    engine.wait(long_wait_ns);
    count = engine.reap(completions);
  }
  REQUIRE(count == 1);
  REQUIRE(completions[0].tag == request.tag);
  REQUIRE(engine.in_flight() == 0);
  return completions[0].result;
}

/// Writes and reads back sizes on both sides of every block; on a buffered file, any size at any place.
template <class Make>
void check_round_trips(Make& make, bool direct) {
  const scratch_directory place;
  io::scratch_file_options wanted;
  wanted.direct = direct;
  auto file = io::scratch_file::create(place.path(), wanted);
  if (direct && !file.direct()) WARN("no direct I/O here: " + file.notes().front());
  const std::size_t unit = file.alignment_bytes();
  std::vector<std::size_t> sizes = {1, 3, 511, 513, 4095, 4097, 1_MiB - 1, 1_MiB, 1_MiB + 1};
  if (file.direct()) sizes = {unit, 3 * unit, 4096, 64_KiB, 1_MiB - 4096, 1_MiB, 1_MiB + 4096};
  const page_bytes memory{2_MiB};
  auto engine = make(io::engine_options{});
  std::uint64_t tag = 100;
  for (const std::size_t size : sizes) {
    CAPTURE(size, direct);
    for (const std::size_t offset : {std::size_t{0}, unit == 1 ? std::size_t{12345} : 24 * unit}) {
      fill_bytes(memory.span().first(size), tag);
      CHECK(result_of(engine, {file.descriptor(), file_operation::write, offset, memory.span().first(size), ++tag}) ==
            static_cast<std::int64_t>(size));
      std::fill_n(memory.data(), memory.size(), std::byte{0x5A});
      CHECK(result_of(engine, {file.descriptor(), file_operation::read, offset, memory.span().first(size), tag}) ==
            static_cast<std::int64_t>(size));
      CHECK(count_wrong(memory.span().first(size), tag - 1) == 0);
      CHECK(memory.data()[size] == std::byte{0x5A});  // nothing beyond what was asked
    }
  }
}

/// Whether the bytes of one request land in its own memory and file place: many at once, completing in any order.
template <class Make>
void check_many_reaped_late(Make& make) {
  constexpr std::size_t count = 10'000;
  constexpr std::size_t size = 4096;
  constexpr std::size_t places = 512;
  const scratch_directory place;
  auto file = io::scratch_file::create(place.path());
  file.reserve(0, places * size);
  io::engine_options limits;
  limits.depth_max = 8;
  const page_bytes memory{places * size};
  auto engine = make(limits);
  REQUIRE(engine.depth_max() == 8);
  fill_bytes(memory.span(), 3);
  const std::array<std::span<std::byte>, 1> all{memory.span()};
  engine.register_buffers(all);

  std::vector<int> seen(count, 0);
  std::size_t refused = 0;
  std::size_t reaped = 0;
  std::array<file_completion, 3> completions;  // fewer than the depth: reaping takes several calls
  for (std::size_t next = 0; reaped < count;) {
    const std::size_t at = next % places * size;
    const bool taken = next < count && engine.try_submit({file.descriptor(), file_operation::write, at,
                                                          memory.span().subspan(at, size), std::uint64_t{next} << 40U});
    if (taken) {
      ++next;
      continue;
    }
    refused += next < count ? 1U : 0U;
    const std::size_t held = engine.in_flight();
    REQUIRE(held > 0);
    REQUIRE(held <= 8);
    engine.wait(long_wait_ns);
    const std::size_t got = engine.reap(completions);
    REQUIRE(engine.in_flight() == held - got);
    for (std::size_t i = 0; i < got; ++i) {
      REQUIRE((completions[i].tag & ((std::uint64_t{1} << 40U) - 1)) == 0);
      const auto index = std::size_t{completions[i].tag >> 40U};
      REQUIRE(index < count);
      ++seen[index];
      REQUIRE(completions[i].result == static_cast<std::int64_t>(size));
    }
    reaped += got;
  }
  CHECK(refused > 0);  // or the bound was never met
  CHECK(std::count(seen.begin(), seen.end(), 1) == static_cast<std::ptrdiff_t>(count));
  CHECK(engine.in_flight() == 0);
  CHECK(engine.reap(completions) == 0);
  const page_bytes back{places * size};
  CHECK(result_of(engine, {file.descriptor(), file_operation::read, 0, back.span(), 1}) ==
        static_cast<std::int64_t>(back.size()));
  CHECK(count_wrong(back.span(), 3) == 0);
}

/// What the system refuses is told by the completion, and the engine goes on.
template <class Make>
void check_errors(Make& make) {
  const scratch_directory place;
  io::scratch_file_options buffered;
  buffered.direct = false;
  const auto file = io::scratch_file::create(place.path(), buffered);
  const page_bytes memory{8192};
  auto engine = make(io::engine_options{});
  fill_bytes(memory.span(), 1);
  const int fd = file.descriptor();
  CHECK(result_of(engine, {-1, file_operation::read, 0, memory.span(), 1}) == -EBADF);
  CHECK(result_of(engine, {-1, file_operation::write, 0, memory.span(), 1}) == -EBADF);
  CHECK(result_of(engine, {fd, file_operation::read, 0, memory.span(), 2}) == 0);
  CHECK(result_of(engine, {fd, file_operation::write, 0, memory.span().first(5000), 3}) == 5000);
  CHECK(result_of(engine, {fd, file_operation::read, 4096, memory.span(), 4}) == 904);
  CHECK(result_of(engine, {fd, file_operation::read, 5000, memory.span(), 5}) == 0);
  CHECK(result_of(engine, {fd, file_operation::read, 1_TiB, memory.span(), 6}) == 0);
  CHECK(result_of(engine, {fd, file_operation::read, 0, {}, 7}) == 0);
  // Offsets that a signed 64-bit number does not hold; the last would mean "the current position".
  CHECK(result_of(engine, {fd, file_operation::read, std::size_t{1} << 63U, memory.span(), 8}) == -EINVAL);
  CHECK(result_of(engine, {fd, file_operation::read, ~std::size_t{0}, memory.span(), 9}) == -EINVAL);
  CHECK(result_of(engine, {fd, file_operation::write, ~std::size_t{0}, memory.span(), 10}) == -EINVAL);
  const int read_only = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  REQUIRE(read_only >= 0);
  CHECK(result_of(engine, {read_only, file_operation::write, 0, memory.span(), 11}) == -EBADF);
  ::close(read_only);
  CHECK(result_of(engine, {fd, file_operation::read, 0, memory.span().first(5000), ~std::uint64_t{0}}) == 5000);
  CHECK(count_wrong(memory.span().first(5000), 1) == 0);
}

/// One request moves at most transfer_bytes_max, and the completion says so.
template <class Make>
void check_cap(Make& make) {
  const scratch_directory place;
  io::scratch_file_options buffered;
  buffered.direct = false;
  const auto file = io::scratch_file::create(place.path(), buffered);
  io::engine_options limits;
  limits.transfer_bytes_max = 7;
  const page_bytes memory{96};
  auto engine = make(limits);
  CHECK(result_of(engine, {file.descriptor(), file_operation::write, 0, memory.span(), 1}) == 7);
  CHECK(result_of(engine, {file.descriptor(), file_operation::write, 7, memory.span().first(3), 2}) == 3);
  CHECK(result_of(engine, {file.descriptor(), file_operation::read, 0, memory.span(), 3}) == 7);
  CHECK(result_of(engine, {file.descriptor(), file_operation::read, 7, memory.span(), 3}) == 3);
}

/// Waiting ends in time, also with nothing in flight, and no count is too large.
template <class Make>
void check_waiting(Make& make) {
  const scratch_directory place;
  const auto file = io::scratch_file::create(place.path());
  const page_bytes memory{4096};
  auto engine = make(io::engine_options{});
  std::array<file_completion, 1> completions;
  engine.wait(0);
  engine.wait(-1);
  engine.wait((std::numeric_limits<std::int64_t>::max)());
  CHECK(engine.reap(completions) == 0);
  CHECK(engine.reap({}) == 0);

  REQUIRE(engine.try_submit({file.descriptor(), file_operation::write, 0, memory.span(), 5}));
  CHECK(engine.in_flight() == 1);
  CHECK(engine.reap({}) == 0);
  CHECK(engine.in_flight() == 1);
  engine.wait((std::numeric_limits<std::int64_t>::max)());
  CHECK(engine.reap(completions) == 1);
  CHECK(completions[0].tag == 5);
  CHECK(completions[0].result == 4096);
}

/// Signals that interrupt system calls reach no result and no caller.
template <class Make>
void check_signals(Make& make) {
  constexpr std::size_t size = 256_KiB;
  constexpr std::size_t count = 64;
  const scratch_directory place;
  auto file = io::scratch_file::create(place.path());
  const page_bytes memory{count * size};
  const page_bytes back{count * size};
  auto engine = make(io::engine_options{});
  const signal_storm storm;
  file.reserve(0, count * size);
  for (std::uint64_t round = 1; round <= 4; ++round) {
    fill_bytes(memory.span(), round);
    for (const auto operation : {file_operation::write, file_operation::read}) {
      const page_bytes& used = operation == file_operation::write ? memory : back;
      for (std::size_t i = 0; i < count; ++i) {
        REQUIRE(engine.try_submit({file.descriptor(), operation, i * size, used.span().subspan(i * size, size), i}));
      }
      std::array<file_completion, 64> completions;
      while (engine.in_flight() > 0) {
        engine.wait(long_wait_ns);
        const std::size_t got = engine.reap(completions);
        REQUIRE(got > 0);  // an interrupted wait goes on
        for (std::size_t i = 0; i < got; ++i) REQUIRE(completions[i].result == static_cast<std::int64_t>(size));
      }
    }
    CHECK(count_wrong(back.span(), round) == 0);
  }
}

/// Memory may go as soon as the engine is gone, whatever was in flight; what was accepted has happened.
template <class Make>
void check_destruction(Make& make) {
  constexpr std::size_t size = 1_MiB;
  constexpr std::size_t count = 64;
  const scratch_directory place;
  auto file = io::scratch_file::create(place.path());
  file.reserve(0, count * size);
  {
    const page_bytes memory{count * size};
    fill_bytes(memory.span(), 9);
    auto engine = make(io::engine_options{});
    for (std::size_t i = 0; i < count; ++i) {
      REQUIRE(engine.try_submit(
          {file.descriptor(), file_operation::write, i * size, memory.span().subspan(i * size, size), i}));
    }
  }
  {
    auto memory = std::make_unique<page_bytes>(count * size);
    {
      auto engine = make(io::engine_options{});
      for (std::size_t i = 0; i < count; ++i) {
        REQUIRE(engine.try_submit(
            {file.descriptor(), file_operation::read, i * size, memory->span().subspan(i * size, size), i}));
      }
    }
    CHECK(count_wrong(memory->span(), 9) == 0);  // the reads are over: all of it is there, and nothing changes it later
    std::fill_n(memory->data(), memory->size(), std::byte{0x11});
    CHECK(std::count(memory->data(), memory->data() + memory->size(), std::byte{0x11}) ==
          static_cast<std::ptrdiff_t>(memory->size()));
  }
  SECTION("with an exception on the way") {
    bool caught = false;
    try {
      const page_bytes memory{count * size};
      auto engine = make(io::engine_options{});
      for (std::size_t i = 0; i < count; ++i) {
        engine.try_submit(
            {file.descriptor(), file_operation::read, i * size, memory.span().subspan(i * size, size), i});
      }
      throw std::runtime_error("in the middle");
    } catch (const std::runtime_error&) {
      caught = true;
    }
    CHECK(caught);
  }
}

/// An engine moves with what is in flight.
template <class Make>
void check_moves(Make& make) {
  const scratch_directory place;
  const auto file = io::scratch_file::create(place.path());
  const page_bytes memory{4096};
  auto first = make(io::engine_options{});
  REQUIRE(first.try_submit({file.descriptor(), file_operation::write, 0, memory.span(), 77}));
  auto second = std::move(first);
  auto third = make(io::engine_options{});
  third = std::move(second);
  std::array<file_completion, 4> completions;
  third.wait(long_wait_ns);
  CHECK(third.reap(completions) == 1);
  CHECK(completions[0].tag == 77);
}

/// Limits that cannot work are told by name.
template <class Make>
void check_limits(Make& make) {
  io::engine_options none;
  none.depth_max = 0;
  CHECK_THROWS_AS(make(none), usage_error);
  io::engine_options much;
  much.transfer_bytes_max = io::engine_options::transfer_bytes_limit + 1;
  CHECK_THROWS_AS(make(much), usage_error);
  io::engine_options one;
  one.depth_max = 1;
  const scratch_directory place;
  const auto file = io::scratch_file::create(place.path());
  const page_bytes memory{4096};
  auto engine = make(one);  // after the memory: it goes first
  REQUIRE(engine.try_submit({file.descriptor(), file_operation::write, 0, memory.span(), 1}));
  CHECK_FALSE(engine.try_submit({file.descriptor(), file_operation::write, 0, memory.span(), 2}));
  CHECK(engine.in_flight() == 1);
}

/// All of the above.
template <class Make>
void check_file_engine(Make make) {
  SECTION("bytes come back on a buffered file") { check_round_trips(make, false); }
  SECTION("bytes come back on a direct file") { check_round_trips(make, true); }
  SECTION("10,000 transfers through depth 8, reaped late (VO-B12)") { check_many_reaped_late(make); }
  SECTION("errors are in completions") { check_errors(make); }
  SECTION("one request moves at most so much (VO-A02)") { check_cap(make); }
  SECTION("waiting ends") { check_waiting(make); }
  SECTION("a storm of signals (VO-B05)") { check_signals(make); }
  SECTION("destroyed with 64 MiB in flight (VO-D09)") { check_destruction(make); }
  SECTION("moves with what is in flight") { check_moves(make); }
  SECTION("limits") { check_limits(make); }
}

}  // namespace vtier::test
