// SPDX-License-Identifier: Apache-2.0
#pragma once

// Numbers, names and tables as lines for people, none of them longer than 120 columns. A file of its own, so that
// reports and findings are about what they say.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>

namespace vtier::detail {

inline constexpr std::size_t line_columns_max = 120;

/// A number of zero or more with one decimal; "much" where it is beyond all bounds.
[[nodiscard]] inline std::string one_decimal(double value) {
  if (!(value >= 0.0 && value < 1e15)) return value >= 1e15 ? "much" : "0.0";
  const auto tenths = static_cast<std::int64_t>(value * 10.0 + 0.5);
  return std::to_string(tenths / 10) + '.' + std::to_string(tenths % 10);
}

/// A share of a whole, 0 to 1, as percents.
[[nodiscard]] inline std::string percent(double share) { return one_decimal(share * 100.0) + " %"; }

[[nodiscard]] inline std::string milliseconds(std::int64_t ns) {
  return one_decimal(static_cast<double>(ns) / 1e6) + " ms";
}

/// Bytes per ns as GB/s, with two decimals.
[[nodiscard]] inline std::string gigabytes_per_second(double bytes_per_ns) {
  if (!(bytes_per_ns >= 0.0 && bytes_per_ns < 1e12)) return "much";
  const auto hundredths = static_cast<std::int64_t>(bytes_per_ns * 100.0 + 0.5);
  const std::string below = std::to_string(hundredths % 100);
  return std::to_string(hundredths / 100) + (below.size() == 1 ? ".0" : ".") + below;
}

/// A part of a whole; 0 of nothing.
[[nodiscard]] constexpr double share_of(double part, double whole) noexcept { return whole > 0.0 ? part / whole : 0.0; }

/// Where a text of more than so many bytes is cut: not within a character.
[[nodiscard]] constexpr std::size_t cut(std::string_view text, std::size_t bytes_max) noexcept {
  if (text.size() <= bytes_max) return text.size();
  std::size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return end;
}

/// A name as a table can hold it.
[[nodiscard]] inline std::string short_name(const std::string& given) {
  constexpr std::size_t bytes_max = 60;
  if (given.size() <= bytes_max) return one_line(given);
  return one_line(given.substr(0, cut(given, bytes_max))) + "...";
}

/// How many characters a text has.
[[nodiscard]] constexpr std::size_t columns(std::string_view text) noexcept {
  std::size_t result = 0;
  for (const char c : text) result += (static_cast<unsigned char>(c) & 0xC0U) == 0x80U ? 0U : 1U;
  return result;
}

/// Appends a text, broken at blanks into lines; those after the first are indented further. A word that is longer than
/// a line is broken too.
///
/// Gives   lines that end with a newline each
inline void append_lines(std::string& to, const std::string& given) {
  const std::string text = one_line(given);
  std::string line = "  ";
  bool empty = true;
  const auto next_line = [&] {
    to += line + '\n';
    line = "      ";
    empty = true;
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = text.find_first_not_of(' ', at);
    if (begin == std::string::npos) break;
    const std::size_t end = (std::min)(text.find(' ', begin), text.size());
    std::string word = text.substr(begin, end - begin);
    at = end;
    if (!empty && columns(line) + 1 + columns(word) > line_columns_max) next_line();
    while (empty && columns(line) + columns(word) > line_columns_max) {
      std::size_t part = cut(word, line_columns_max - line.size());
      if (part == 0) part = line_columns_max - line.size();  // no UTF-8: any place is as good
      line += word.substr(0, part);
      word.erase(0, part);
      next_line();
    }
    if (!empty) line += ' ';
    line += word;
    empty = false;
  }
  to += line + '\n';
}

/// Appends a table: the first column to the left, the others to the right, each as wide as it must be. Columns that do
/// not fit beside each other follow below, behind the first column again.
///
/// Needs   rows of one length, the head first
/// Gives   lines that end with a newline each; nothing where there is but a head
inline void append_table(std::string& to, const std::vector<std::vector<std::string>>& rows) {
  constexpr std::size_t gap = 2;
  if (rows.size() < 2 || rows.front().empty()) return;
  std::vector<std::size_t> widths(rows.front().size(), 0);
  widths.front() = 8;
  for (const auto& row : rows) {
    VTIER_ASSERT(row.size() == widths.size(), "a row of a table that has another length than its head");
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = (std::max)(widths[i], columns(row[i]));
  }
  std::size_t first = 1;
  do {
    std::size_t width = gap + widths.front();
    std::size_t last = first;
    while (last < widths.size() && (last == first || width + gap + widths[last] <= line_columns_max)) {
      width += gap + widths[last++];
    }
    for (const auto& row : rows) {
      to += std::string(gap, ' ') + row.front();
      if (last > first) to += std::string(widths.front() - columns(row.front()), ' ');
      for (std::size_t i = first; i < last; ++i) to += std::string(gap + widths[i] - columns(row[i]), ' ') + row[i];
      to += '\n';
    }
    first = last;
  } while (first < widths.size());
}

}  // namespace vtier::detail
