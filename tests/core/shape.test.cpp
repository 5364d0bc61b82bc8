// SPDX-License-Identifier: Apache-2.0
#include <vtier/core/shape.hpp>

#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <vtier/core/element.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"

using vtier::shape;
using vtier::size_bytes;

TEST_CASE("a shape of no extents is one element", "[core][shape]") {
  const shape one;
  CHECK(one.rank() == 0);
  CHECK(one.elements() == 1);
  CHECK(one.bytes(4) == 4);
  CHECK(one.to_string() == "[]");
  CHECK(one.extents().empty());
}

TEST_CASE("a shape keeps its extents, outermost first", "[core][shape]") {
  const shape s{2, 3, 5};
  CHECK(s.rank() == 3);
  CHECK(s[0] == 2);
  CHECK(s[2] == 5);
  CHECK(s.elements() == 30);
  CHECK(s.to_string() == "[2, 3, 5]");
  CHECK(s == shape{2, 3, 5});
  CHECK_FALSE(s == shape{5, 3, 2});
  CHECK_FALSE(s == shape{30});
  CHECK_FALSE(shape{2} == shape{2, 1});
  const std::vector<std::size_t> extents{2, 3, 5};
  CHECK(shape{std::span<const std::size_t>{extents}} == s);
}

// VO-A03: products that a 32-bit counter gets wrong.
TEST_CASE("elements and bytes are counted in 64 bits", "[core][shape]") {
  CHECK(shape{3'118'080'001}.bytes(size_bytes(vtier::element_type::u8)) == 3'118'080'001U);
  CHECK(shape{262'144, 8'960}.elements() == 2'348'810'240U);
  CHECK(shape{262'144, 8'960}.bytes(size_bytes(vtier::element_type::bf16)) == 4'697'620'480U);
  CHECK(shape{46'341, 46'341}.bytes(size_bytes(vtier::element_type::fp32)) == 8'589'953'124U);
}

TEST_CASE("a product that leaves 64 bits is refused where it is written", "[core][shape]") {
  const std::size_t half = std::size_t{1} << 32U;
  CHECK_THROWS_AS((shape{half, half}), vtier::usage_error);
  CHECK_THROWS_AS((shape{half, half, 0, 3}.bytes(0) + shape{half, half, 1}.elements()), vtier::usage_error);
  const shape fits{half, half / 2};
  CHECK(fits.elements() == std::size_t{1} << 63U);
  CHECK(fits.bytes(1) == std::size_t{1} << 63U);
  CHECK_THROWS_AS(fits.bytes(2), vtier::usage_error);
  try {
    static_cast<void>(fits.bytes(2));
  } catch (const vtier::usage_error& e) {
    CHECK(std::string{e.what()}.find("[4294967296, 2147483648]") != std::string::npos);
  }
}

// VO-A04: no elements is a shape like any other, whatever stands beside the zero.
TEST_CASE("a zero among the extents means no elements", "[core][shape]") {
  const std::size_t most = (std::numeric_limits<std::size_t>::max)();
  for (const shape& s : {shape{0}, shape{0, 5}, shape{5, 0, 3}, shape{most, most, 0}, shape{0, most, most}}) {
    CAPTURE(s.to_string());
    CHECK(s.elements() == 0);
    CHECK(s.bytes(most) == 0);
  }
  CHECK_FALSE(shape{0, 5} == shape{5, 0});
}

TEST_CASE("eight extents are the most", "[core][shape]") {
  CHECK(shape{1, 1, 1, 1, 1, 1, 1, 2}.elements() == 2);
  CHECK_THROWS_AS((shape{1, 1, 1, 1, 1, 1, 1, 1, 1}), vtier::usage_error);
  const std::vector<std::size_t> many(1'000, 1);
  CHECK_THROWS_AS(shape{std::span<const std::size_t>{many}}, vtier::usage_error);
}

TEST_CASE("an extent that is not there is a programmer's error", "[core][shape]") {
  CHECK(vtier::test::in_child([] { return shape{2, 3}[2] == 0; }).asserted("an extent was asked for"));
}
