// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a tensor is made of: element types by name, and their sizes.
//
// The small float formats are storage only: vtier moves them, `train/precision` converts them. The names are the
// field's (bf16, fp16, fp8_e4m3).

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include <vtier/core/config.hpp>

namespace vtier {

/// The bits of a bfloat16 number: 1 sign, 8 exponent, 7 mantissa.
struct bf16 {
  std::uint16_t bits;
  friend bool operator==(const bf16&, const bf16&) = default;
};

/// The bits of an IEEE 754 binary16 number: 1 sign, 5 exponent, 10 mantissa.
struct fp16 {
  std::uint16_t bits;
  friend bool operator==(const fp16&, const fp16&) = default;
};

/// The bits of an 8-bit float, 4 exponent and 3 mantissa bits, no infinities.
struct fp8_e4m3 {
  std::uint8_t bits;
  friend bool operator==(const fp8_e4m3&, const fp8_e4m3&) = default;
};

/// The bits of an 8-bit float, 5 exponent and 2 mantissa bits.
struct fp8_e5m2 {
  std::uint8_t bits;
  friend bool operator==(const fp8_e5m2&, const fp8_e5m2&) = default;
};

/// An element type as a value.
enum class element_type : std::uint8_t {
  fp64,
  fp32,
  bf16,
  fp16,
  fp8_e4m3,
  fp8_e5m2,
  i64,
  i32,
  i16,
  i8,
  u64,
  u32,
  u16,
  u8
};

namespace detail {

template <class T>
struct element_traits {};
template <element_type Type>
struct element_is {
  static constexpr element_type type = Type;
};
template <>
struct element_traits<double> : element_is<element_type::fp64> {};
template <>
struct element_traits<float> : element_is<element_type::fp32> {};
template <>
struct element_traits<vtier::bf16> : element_is<element_type::bf16> {};
template <>
struct element_traits<vtier::fp16> : element_is<element_type::fp16> {};
template <>
struct element_traits<vtier::fp8_e4m3> : element_is<element_type::fp8_e4m3> {};
template <>
struct element_traits<vtier::fp8_e5m2> : element_is<element_type::fp8_e5m2> {};
template <>
struct element_traits<std::int64_t> : element_is<element_type::i64> {};
template <>
struct element_traits<std::int32_t> : element_is<element_type::i32> {};
template <>
struct element_traits<std::int16_t> : element_is<element_type::i16> {};
template <>
struct element_traits<std::int8_t> : element_is<element_type::i8> {};
template <>
struct element_traits<std::uint64_t> : element_is<element_type::u64> {};
template <>
struct element_traits<std::uint32_t> : element_is<element_type::u32> {};
template <>
struct element_traits<std::uint16_t> : element_is<element_type::u16> {};
template <>
struct element_traits<std::uint8_t> : element_is<element_type::u8> {};
template <>
struct element_traits<std::byte> : element_is<element_type::u8> {};

}  // namespace detail

/// A type that a tensor can hold: the standard numbers, std::byte, and the small float formats above.
template <class T>
concept element = requires {
  { detail::element_traits<T>::type } -> std::convertible_to<element_type>;
};

/// The element type of T as a value.
template <element T>
inline constexpr element_type element_type_of = detail::element_traits<T>::type;

/// The size of one element, in bytes.
///
/// Threads any
[[nodiscard]] constexpr std::size_t size_bytes(element_type type) noexcept {
  switch (type) {
    case element_type::fp64:
    case element_type::i64:
    case element_type::u64: return 8;
    case element_type::fp32:
    case element_type::i32:
    case element_type::u32: return 4;
    case element_type::bf16:
    case element_type::fp16:
    case element_type::i16:
    case element_type::u16: return 2;
    case element_type::fp8_e4m3:
    case element_type::fp8_e5m2:
    case element_type::i8:
    case element_type::u8: return 1;
  }
  return 0;
}

/// The name of an element type, as the enumerator is written.
///
/// Threads any
[[nodiscard]] constexpr std::string_view name(element_type type) noexcept {
  switch (type) {
    case element_type::fp64: return "fp64";
    case element_type::fp32: return "fp32";
    case element_type::bf16: return "bf16";
    case element_type::fp16: return "fp16";
    case element_type::fp8_e4m3: return "fp8_e4m3";
    case element_type::fp8_e5m2: return "fp8_e5m2";
    case element_type::i64: return "i64";
    case element_type::i32: return "i32";
    case element_type::i16: return "i16";
    case element_type::i8: return "i8";
    case element_type::u64: return "u64";
    case element_type::u32: return "u32";
    case element_type::u16: return "u16";
    case element_type::u8: return "u8";
  }
  return "unknown";
}

}  // namespace vtier
