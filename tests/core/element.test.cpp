// SPDX-License-Identifier: Apache-2.0
#include <vtier/core/element.hpp>

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <type_traits>

#include "support/catch.hpp"

namespace {

using vtier::element_type;
using vtier::element_type_of;

// The size that the table gives is the size that the type has: a tensor of n is n * sizeof(T) bytes.
template <class T>
constexpr bool agrees(element_type type) {
  return vtier::element<T> && element_type_of<T> == type && vtier::size_bytes(type) == sizeof(T) &&
         std::is_trivially_copyable_v<T>;
}
static_assert(agrees<double>(element_type::fp64));
static_assert(agrees<float>(element_type::fp32));
static_assert(agrees<vtier::bf16>(element_type::bf16));
static_assert(agrees<vtier::fp16>(element_type::fp16));
static_assert(agrees<vtier::fp8_e4m3>(element_type::fp8_e4m3));
static_assert(agrees<vtier::fp8_e5m2>(element_type::fp8_e5m2));
static_assert(agrees<std::int64_t>(element_type::i64));
static_assert(agrees<std::int32_t>(element_type::i32));
static_assert(agrees<std::int16_t>(element_type::i16));
static_assert(agrees<std::int8_t>(element_type::i8));
static_assert(agrees<std::uint64_t>(element_type::u64));
static_assert(agrees<std::uint32_t>(element_type::u32));
static_assert(agrees<std::uint16_t>(element_type::u16));
static_assert(agrees<std::uint8_t>(element_type::u8));
static_assert(agrees<std::byte>(element_type::u8));

struct own {
  float x;
};
static_assert(!vtier::element<own>);
static_assert(!vtier::element<bool>);
static_assert(!vtier::element<float*>);
static_assert(!vtier::element<void>);
static_assert(!vtier::element<const float>);
static_assert(!vtier::element<float&>);
static_assert(!vtier::element<std::string>);

static_assert(vtier::bf16{1} == vtier::bf16{1} && !(vtier::bf16{1} == vtier::bf16{2}));

}  // namespace

TEST_CASE("every element type has a name of its own and a size", "[core][element]") {
  std::set<std::string> names;
  std::size_t count = 0;
  for (auto value = static_cast<int>(element_type::fp64); value <= static_cast<int>(element_type::u8); ++value) {
    const auto type = static_cast<element_type>(value);
    ++count;
    names.insert(std::string{vtier::name(type)});
    CHECK(vtier::size_bytes(type) >= 1);
  }
  CHECK(names.size() == count);
  CHECK(count == 14);
  CHECK(names.count("unknown") == 0);
  CHECK(vtier::name(element_type::bf16) == "bf16");
  CHECK(vtier::name(element_type::fp8_e4m3) == "fp8_e4m3");
}

TEST_CASE("a value that no enumerator has is told from all of them", "[core][element]") {
  const auto none = static_cast<element_type>(200);
  CHECK(vtier::name(none) == "unknown");
  CHECK(vtier::size_bytes(none) == 0);
}
