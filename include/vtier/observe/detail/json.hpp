// SPDX-License-Identifier: Apache-2.0
#pragma once

// Any bytes as a string of JSON: names of tiers are the user's, and one of them must not make a file that nothing
// reads.

#include <cstddef>
#include <string>
#include <string_view>

#include <vtier/core/config.hpp>

namespace vtier::detail {

/// How many bytes from `at` on are one character in UTF-8; 0 where they are none.
///
/// Gives   0 for overlong forms, surrogates and what lies beyond U+10FFFF too
/// Threads any
[[nodiscard]] constexpr std::size_t utf8_size(std::string_view text, std::size_t at) noexcept {
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : static_cast<unsigned char>(0);
  };
  const auto follows = [&](std::size_t i, unsigned low = 0x80U, unsigned high = 0xBFU) {
    return byte(i) >= low && byte(i) <= high;
  };
  const unsigned first = byte(0);
  if (first < 0x80U) return at < text.size() ? 1 : 0;
  if (first >= 0xC2U && first <= 0xDFU) return follows(1) ? 2 : 0;
  if (first >= 0xE0U && first <= 0xEFU) {
    return follows(1, first == 0xE0U ? 0xA0U : 0x80U, first == 0xEDU ? 0x9FU : 0xBFU) && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0U && first <= 0xF4U) {
    return follows(1, first == 0xF0U ? 0x90U : 0x80U, first == 0xF4U ? 0x8FU : 0xBFU) && follows(2) && follows(3) ? 4
                                                                                                                  : 0;
  }
  return 0;
}

/// A string of JSON with its quotes; each byte that is no UTF-8 becomes U+FFFD.
///
/// Threads any
[[nodiscard]] inline std::string json_string(std::string_view text) {
  constexpr char digits[] = "0123456789abcdef";
  std::string result = "\"";
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t size = utf8_size(text, at);
    const char c = text[at];
    const auto code = static_cast<unsigned char>(c);
    if (size == 0) {
      result += "\\ufffd";
    } else if (c == '"' || c == '\\') {
      result += {'\\', c};
    } else if (code < 0x20U || code == 0x7FU) {
      result += {'\\', 'u', '0', '0', digits[code >> 4U], digits[code & 0xFU]};
    } else {
      result += text.substr(at, size);
    }
    at += size == 0 ? 1 : size;
  }
  return result + '"';
}

}  // namespace vtier::detail
