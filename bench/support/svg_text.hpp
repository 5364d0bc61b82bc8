// SPDX-License-Identifier: Apache-2.0
#pragma once

// What pictures as SVG files have in common: text that may hold any character.

#include <string>

namespace vtier::bench {

/// Text for an SVG file.
[[nodiscard]] inline std::string svg_text(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '<': result += "&lt;"; break;
      case '>': result += "&gt;"; break;
      case '&': result += "&amp;"; break;
      case '"': result += "&quot;"; break;
      default: result += c;
    }
  }
  return result;
}

}  // namespace vtier::bench
