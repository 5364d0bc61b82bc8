// SPDX-License-Identifier: Apache-2.0
#pragma once

// How many bytes: literals, checked arithmetic, and text.
//
// Every size in vtier is a std::size_t count of bytes. What can overflow goes through the checked_ functions here, so
// that a product that wraps is an empty optional and never a small number.

#include <cstddef>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <vtier/core/config.hpp>

namespace vtier {

inline namespace literals {

/// Byte counts by their binary units: `64_GiB`.
///
/// Units   bytes
/// Cost    none: evaluated by the compiler, which refuses a count that does not fit in 64 bits
VTIER_CONSTEVAL std::size_t operator""_B(unsigned long long count) { return count; }
VTIER_CONSTEVAL std::size_t operator""_KiB(unsigned long long count) {
  return count <= (~0ULL >> 10U) ? count << 10U : throw "more than 64 bits of bytes";
}
VTIER_CONSTEVAL std::size_t operator""_MiB(unsigned long long count) {
  return count <= (~0ULL >> 20U) ? count << 20U : throw "more than 64 bits of bytes";
}
VTIER_CONSTEVAL std::size_t operator""_GiB(unsigned long long count) {
  return count <= (~0ULL >> 30U) ? count << 30U : throw "more than 64 bits of bytes";
}
VTIER_CONSTEVAL std::size_t operator""_TiB(unsigned long long count) {
  return count <= (~0ULL >> 40U) ? count << 40U : throw "more than 64 bits of bytes";
}

}  // namespace literals

/// Multiplies two counts; empty where the product does not fit in 64 bits.
///
/// Threads any
[[nodiscard]] constexpr std::optional<std::size_t> checked_multiply(std::size_t a, std::size_t b) noexcept {
  if (a != 0 && b > (std::numeric_limits<std::size_t>::max)() / a) return std::nullopt;
  return a * b;
}

/// Adds two counts; empty where the sum does not fit in 64 bits.
///
/// Threads any
[[nodiscard]] constexpr std::optional<std::size_t> checked_add(std::size_t a, std::size_t b) noexcept {
  if (b > (std::numeric_limits<std::size_t>::max)() - a) return std::nullopt;
  return a + b;
}

/// Whether `value` is a power of two: 1, 2, 4, ...
///
/// Threads any
[[nodiscard]] constexpr bool is_power_of_two(std::size_t value) noexcept {
  return value != 0 && (value & (value - 1)) == 0;
}

/// Rounds up to a multiple of `alignment`; empty where the result does not fit in 64 bits.
///
/// Needs   alignment a power of two
/// Threads any
[[nodiscard]] constexpr std::optional<std::size_t> checked_align_up(std::size_t value, std::size_t alignment) noexcept {
  const auto sum = checked_add(value, alignment - 1);
  if (!sum) return std::nullopt;
  return *sum & ~(alignment - 1);
}

/// Rounds up to a multiple of `alignment`.
///
/// Needs   alignment a power of two; the result fits in 64 bits (asserted)
/// Threads any
[[nodiscard]] constexpr std::size_t align_up(std::size_t value, std::size_t alignment) noexcept {
  VTIER_ASSERT(is_power_of_two(alignment), "an alignment must be a power of two");
  const auto result = checked_align_up(value, alignment);
  VTIER_ASSERT(result.has_value(), "rounding up to an alignment left 64 bits");
  return *result;
}

/// Rounds down to a multiple of `alignment`.
///
/// Needs   alignment a power of two
/// Threads any
[[nodiscard]] constexpr std::size_t align_down(std::size_t value, std::size_t alignment) noexcept {
  return value & ~(alignment - 1);
}

/// Writes a byte count for people: "0 B", "1.5 KiB", "48 MiB", "3.25 TiB".
///
/// Units   bytes in; the largest binary unit that leaves a number of at least one; at most two decimals, rounded down
/// Threads any
/// Cost    one string
[[nodiscard]] inline std::string format_bytes(std::size_t size_bytes) {
  constexpr std::string_view units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  std::size_t unit = 0;
  while (unit + 1 < std::size(units) && (size_bytes >> (10U * (unit + 1))) != 0) ++unit;
  const std::size_t shift = 10U * unit;
  std::string text = std::to_string(size_bytes >> shift);
  if (unit > 0) {
    // Digit by digit: ten times the part below the unit always fits in 64 bits.
    const std::size_t below = (std::size_t{1} << shift) - 1;
    const std::size_t tenths = (size_bytes & below) * 10U;
    const std::size_t hundredths = (tenths & below) * 10U;
    const auto first = static_cast<char>('0' + (tenths >> shift));
    const auto second = static_cast<char>('0' + (hundredths >> shift));
    if (first != '0' || second != '0') {
      text += '.';
      text += first;
      if (second != '0') text += second;
    }
  }
  text += ' ';
  text += units[unit];
  return text;
}

/// Reads a byte count such as "48MiB", "1.5 GiB", "4096" or "2TB".
///
/// Units   KiB, MiB, GiB, TiB, PiB, EiB are powers of 1024; kB, MB, GB, TB, PB, EB powers of 1000; B or nothing means
///         bytes; a fraction is cut to whole bytes; letter case does not matter
/// Gives   empty where the text is not a byte count or does not fit in 64 bits
/// Threads any
[[nodiscard]] constexpr std::optional<std::size_t> parse_bytes(std::string_view text) noexcept {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  std::size_t at = 0;
  std::size_t whole = 0;
  if (text.empty() || !is_digit(text[0])) return std::nullopt;
  for (; at < text.size() && is_digit(text[at]); ++at) {
    const auto tens = checked_multiply(whole, 10);
    const auto sum = tens ? checked_add(*tens, static_cast<std::size_t>(text[at] - '0')) : std::nullopt;
    if (!sum) return std::nullopt;
    whole = *sum;
  }
  std::string_view fraction;
  if (at < text.size() && text[at] == '.') {
    const std::size_t first = ++at;
    while (at < text.size() && is_digit(text[at])) ++at;
    if (at == first) return std::nullopt;
    fraction = text.substr(first, at - first);
  }
  while (at < text.size() && text[at] == ' ') ++at;
  std::size_t unit = 1;
  if (at < text.size() && lower(text[at]) != 'b') {
    std::size_t power = 0;
    switch (lower(text[at])) {
      case 'k': power = 1; break;
      case 'm': power = 2; break;
      case 'g': power = 3; break;
      case 't': power = 4; break;
      case 'p': power = 5; break;
      case 'e': power = 6; break;
      default: return std::nullopt;
    }
    ++at;
    std::size_t base = 1000;
    if (at < text.size() && lower(text[at]) == 'i') {
      base = 1024;
      ++at;
    }
    for (; power > 0; --power) unit *= base;
    if (at == text.size()) return std::nullopt;  // "48M": 1000 or 1024? say which
  }
  if (at < text.size() && lower(text[at]) == 'b') ++at;
  if (at != text.size()) return std::nullopt;
  const auto large = checked_multiply(whole, unit);
  if (!large) return std::nullopt;
  // From the last digit up, so that cutting at each step cuts only once; below 10 * 2^60 all the way.
  std::size_t part = 0;
  for (std::size_t i = fraction.size(); i > 0; --i) {
    part = (static_cast<std::size_t>(fraction[i - 1] - '0') * unit + part) / 10U;
  }
  return checked_add(*large, part);
}

}  // namespace vtier
