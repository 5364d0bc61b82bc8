// SPDX-License-Identifier: Apache-2.0
#include <vtier/transfer/route.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/random_source.hpp>

#include "support/catch.hpp"

using namespace vtier::literals;

namespace {

using vtier::hop;
using vtier::memory_kind;

constexpr bool goes(memory_kind from, memory_kind to, hop first, hop second, bool staged) {
  const vtier::route way = vtier::route_of(from, to);
  return way.first == first && way.second == second && way.staged == staged;
}

constexpr auto device = memory_kind::device;
constexpr auto host = memory_kind::host;
constexpr auto file = memory_kind::file;
static_assert(goes(device, device, hop::device_copy, hop::device_copy, false));
static_assert(goes(device, host, hop::device_copy, hop::device_copy, false));
static_assert(goes(host, device, hop::device_copy, hop::device_copy, false));
static_assert(goes(host, host, hop::device_copy, hop::device_copy, false));
static_assert(goes(host, file, hop::file_write, hop::file_write, false));
static_assert(goes(device, file, hop::device_copy, hop::file_write, true));
static_assert(goes(file, device, hop::file_read, hop::device_copy, true));
static_assert(goes(file, file, hop::file_read, hop::file_write, true));
static_assert(vtier::route_of(file, host).first == hop::file_read && !vtier::route_of(file, host).staged);

static_assert(vtier::chunk_count(0, 4096) == 0);
static_assert(vtier::chunk_count(1, 4096) == 1 && vtier::chunk_count(4096, 4096) == 1);
static_assert(vtier::chunk_count(4097, 4096) == 2);
static_assert(vtier::chunk_count(~std::size_t{0}, 2) == std::size_t{1} << 63U);  // no sum that wraps

}  // namespace

TEST_CASE("chunks cover every byte once, in order, and only the last is shorter or padded", "[transfer][route]") {
  vtier::random_source random{2};
  for (int round = 0; round < 5'000; ++round) {
    const std::size_t alignment = std::size_t{1} << random.below(13);
    const std::size_t chunk_bytes = alignment * (1 + random.below(64));
    const std::size_t size = random.below(chunk_bytes * 20);
    CAPTURE(round, alignment, chunk_bytes, size);
    const std::size_t count = vtier::chunk_count(size, chunk_bytes);
    std::size_t next = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const vtier::chunk c = vtier::chunk_at(i, size, chunk_bytes, alignment);
      REQUIRE(c.offset_bytes == next);
      REQUIRE(c.size_bytes > 0);
      REQUIRE(c.padded_bytes >= c.size_bytes);
      REQUIRE(c.padded_bytes - c.size_bytes < alignment);
      REQUIRE(c.padded_bytes % alignment == 0);
      REQUIRE(c.padded_bytes <= chunk_bytes);  // it fits in a slot
      if (i + 1 < count) {
        REQUIRE(c.size_bytes == chunk_bytes);
        REQUIRE(c.padded_bytes == chunk_bytes);
      }
      next += c.size_bytes;
    }
    REQUIRE(next == size);
  }
}

// VO-A03
TEST_CASE("offsets of chunks go beyond 32 bits", "[transfer][route]") {
  const std::size_t size = 8'589'953'124U;
  const std::size_t count = vtier::chunk_count(size, 2_MiB);
  CHECK(count == 4'097);
  const vtier::chunk last = vtier::chunk_at(count - 1, size, 2_MiB, 4_KiB);
  CHECK(last.offset_bytes == 4'096 * 2_MiB);
  CHECK(last.offset_bytes + last.size_bytes == size);
}

TEST_CASE("staging fits its budget and has eight slots where that is possible", "[transfer][route]") {
  vtier::random_source random{4};
  for (int round = 0; round < 5'000; ++round) {
    const std::size_t alignment = std::size_t{1} << random.below(13);
    const std::size_t budget = random.below(1_MiB);
    const std::size_t chunk_max = alignment + random.below(256_KiB);
    CAPTURE(round, alignment, budget, chunk_max);
    const vtier::staging_shape shape = vtier::shape_staging(budget, chunk_max, alignment);
    REQUIRE(shape.chunk_bytes > 0);
    REQUIRE(shape.chunk_bytes % alignment == 0);
    REQUIRE(shape.chunk_bytes <= chunk_max);
    REQUIRE(shape.slot_count * shape.chunk_bytes <= budget);
    REQUIRE((shape.slot_count == 0) == (budget < alignment));
    if (budget >= 8 * alignment) REQUIRE(shape.slot_count >= 8);
  }
  const vtier::staging_shape usual = vtier::shape_staging(32_MiB, 2_MiB, 4_KiB);
  CHECK(usual.chunk_bytes == 2_MiB);
  CHECK(usual.slot_count == 16);
}
