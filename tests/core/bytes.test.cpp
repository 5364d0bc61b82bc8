// SPDX-License-Identifier: Apache-2.0
#include <vtier/core/bytes.hpp>

#include <cstddef>
#include <limits>
#include <optional>
#include <string>

#include <vtier/core/random_source.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"

using namespace vtier::literals;
using vtier::format_bytes;
using vtier::parse_bytes;

namespace {

constexpr std::size_t most = (std::numeric_limits<std::size_t>::max)();

static_assert(1_KiB == 1024 && 1_MiB == 1024_KiB && 1_GiB == 1024_MiB && 1_TiB == 1024_GiB && 7_B == 7);
static_assert(16777215_TiB == most - (1_TiB - 1));  // the largest that fits

static_assert(vtier::checked_multiply(0, most) == 0U);
static_assert(vtier::checked_multiply(most, 0) == 0U);
static_assert(vtier::checked_multiply(most, 1) == most);
static_assert(vtier::checked_multiply(1ULL << 32U, (1ULL << 32U) - 1) == most - ((1ULL << 32U) - 1));
static_assert(!vtier::checked_multiply(1ULL << 32U, 1ULL << 32U));
static_assert(!vtier::checked_multiply(most, 2));
static_assert(vtier::checked_add(most, 0) == most);
static_assert(!vtier::checked_add(most, 1));

static_assert(!vtier::is_power_of_two(0) && vtier::is_power_of_two(1) && !vtier::is_power_of_two(3));
static_assert(vtier::is_power_of_two(1ULL << 63U) && !vtier::is_power_of_two(most));

static_assert(vtier::align_up(0, 4096) == 0 && vtier::align_up(1, 4096) == 4096 && vtier::align_up(4096, 4096) == 4096);
static_assert(vtier::align_up(4097, 1) == 4097);
static_assert(vtier::align_down(4095, 4096) == 0 && vtier::align_down(8191, 4096) == 4096);
static_assert(vtier::checked_align_up(most - 255, 256) == most - 255);
static_assert(!vtier::checked_align_up(most - 254, 256));

}  // namespace

TEST_CASE("bytes are written with the largest unit that leaves at least one", "[core][bytes]") {
  CHECK(format_bytes(0) == "0 B");
  CHECK(format_bytes(1023) == "1023 B");
  CHECK(format_bytes(1_KiB) == "1 KiB");
  CHECK(format_bytes(1536) == "1.5 KiB");
  CHECK(format_bytes(48_MiB) == "48 MiB");
  CHECK(format_bytes(3_TiB + 256_GiB) == "3.25 TiB");
  CHECK(format_bytes(1_MiB + 64_KiB) == "1.06 MiB");  // a zero before the last digit
  CHECK(format_bytes(1_GiB - 1) == "1023.99 MiB");    // rounded down, not up to the next unit
  CHECK(format_bytes(1'069'548) == "1.02 MiB");       // just above 1.02: not cut twice on the way
  CHECK(format_bytes(1024_TiB) == "1 PiB");
  CHECK(format_bytes(most) == "15.99 EiB");
}

TEST_CASE("bytes are read in binary and decimal units", "[core][bytes]") {
  CHECK(parse_bytes("0") == 0U);
  CHECK(parse_bytes("4096") == 4096U);
  CHECK(parse_bytes("4096B") == 4096U);
  CHECK(parse_bytes("48MiB") == 48_MiB);
  CHECK(parse_bytes("48 mib") == 48_MiB);
  CHECK(parse_bytes("1.5 GiB") == 1_GiB + 512_MiB);
  CHECK(parse_bytes("2TB") == 2'000'000'000'000U);
  CHECK(parse_bytes("1.25kB") == 1250U);
  CHECK(parse_bytes("1.9999 B") == 1U);  // cut to whole bytes
  CHECK(parse_bytes("0.1 KiB") == 102U);
  CHECK(parse_bytes("0.333333333333 TiB") == 366'503'875'924U);
  CHECK(parse_bytes("1.0000000009 TiB") == 1_TiB + 989U);
  CHECK(parse_bytes("15EiB") == 15U * 1024_TiB * 1024U);
  CHECK(parse_bytes("15.9999999999999999999 EiB") == most);  // every fraction of the largest unit fits beside it
  CHECK(parse_bytes("18446744073709551615") == most);
}

TEST_CASE("what is no byte count is refused", "[core][bytes]") {
  for (const char* text : {"",
                           " ",
                           " 1",
                           "-1",
                           "+1",
                           "abc",
                           ".5 GiB",
                           "1.",
                           "1. GiB",
                           "1.5.2",
                           "1,5 GiB",
                           "48M",
                           "48Mi",
                           "48 X",
                           "48iB",
                           "1 KiB ",
                           "1 KiBB",
                           "0x10",
                           "1e3",
                           "KiB",
                           "1 K B",
                           "inf",
                           "18446744073709551616",
                           "16EiB",
                           "16777216 TiB",
                           "18.5 EB",
                           "99999999999999999999 B"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_bytes(text).has_value());
  }
}

TEST_CASE("what was written can be read back, to the digits that were written", "[core][bytes]") {
  vtier::random_source random{20};
  for (int i = 0; i < 20'000; ++i) {
    const std::size_t size = random() >> random.below(64);
    const std::string text = format_bytes(size);
    CAPTURE(size, text);
    const std::optional<std::size_t> read = parse_bytes(text);
    REQUIRE(read.has_value());
    REQUIRE(*read <= size);
    REQUIRE(size - *read <= size / 100);  // one hundredth of a unit, and there is at least one unit
  }
}

TEST_CASE("whole units survive the way through text", "[core][bytes]") {
  for (unsigned shift = 0; shift < 64; ++shift) {
    CAPTURE(shift);
    CHECK(parse_bytes(format_bytes(std::size_t{1} << shift)) == std::size_t{1} << shift);
  }
}

TEST_CASE("an alignment that cannot be is a programmer's error", "[core][bytes]") {
  CHECK(vtier::test::in_child([] { return vtier::align_up(1, 3) != 0; }).asserted("power of two"));
  CHECK(vtier::test::in_child([] { return vtier::align_up(most, 4096) == 0; }).asserted("left 64 bits"));
}
