// SPDX-License-Identifier: Apache-2.0
#pragma once

// The text of an allocation log and what it means, both ways; no resource and no file here.
//
// The format is the one of RMM's logging adaptor, so that its replay tool and the scripts around it read our logs and
// ours read theirs.

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>

namespace vtier {

/// What a line of an allocation log is about.
enum class allocation_action { allocate, free, allocate_failure };

/// One line of an allocation log.
///
/// Units   time: microseconds of the day; size: bytes
struct allocation_record {
  std::uint64_t thread = 0;
  std::int64_t time_us = 0;
  allocation_action action = allocation_action::allocate;
  std::uint64_t pointer = 0;  // 0 for a failure
  std::size_t size_bytes = 0;
  std::uint64_t stream = 0;  // 0: none, or the default stream
  friend bool operator==(const allocation_record&, const allocation_record&) = default;
};

/// The first line of an allocation log.
inline constexpr std::string_view allocation_log_header = "Thread,Time,Action,Pointer,Size,Stream";

/// Appends one record as a line, with its end.
///
/// Gives   thread and size in decimal, the time as HH:MM:SS.microseconds, pointer and stream as 0x and hexadecimal
/// Errors  std::bad_alloc; the text is as it was then, or longer by a part of the line
/// Source  RMM, logging_resource_adaptor
inline void append_allocation_record(std::string& text, const allocation_record& record) {
  char number[24];
  const auto put = [&](std::uint64_t value, int numerals) {
    text.append(number, std::to_chars(number, number + sizeof number, value, numerals).ptr);
  };
  const auto put_padded = [&](std::int64_t value, std::size_t width) {
    const char* const end = std::to_chars(number, number + sizeof number, value).ptr;
    const auto length = static_cast<std::size_t>(end - number);
    if (length < width) text.append(width - length, '0');
    text.append(number, length);
  };
  put(record.thread, 10);
  text += ',';
  put_padded(record.time_us / 3'600'000'000, 2);
  text += ':';
  put_padded(record.time_us / 60'000'000 % 60, 2);
  text += ':';
  put_padded(record.time_us / 1'000'000 % 60, 2);
  text += '.';
  put_padded(record.time_us % 1'000'000, 6);
  switch (record.action) {
    case allocation_action::allocate: text += ",allocate,0x"; break;
    case allocation_action::free: text += ",free,0x"; break;
    case allocation_action::allocate_failure: text += ",allocate failure,0x"; break;
  }
  put(record.pointer, 16);
  text += ',';
  put(record.size_bytes, 10);
  text += ",0x";
  put(record.stream, 16);
  text += '\n';
}

namespace detail {

/// One line on its way through the parser; every complaint names it.
class allocation_line {
 public:
  allocation_line(std::string_view text, std::size_t number) : rest_{text}, number_{number} {}

  [[nodiscard]] usage_error wrong(std::string_view what) const {
    return usage_error{"allocation log, line " + std::to_string(number_) + ": " + std::string{what}};
  }

  /// The text up to the next comma.
  [[nodiscard]] std::string_view field(std::string_view name, bool is_last = false) {
    const std::size_t end = rest_.find(',');
    if ((end == std::string_view::npos) != is_last) {
      throw wrong(is_last ? "more than six columns" : std::string{name} + " is the last column, six are expected");
    }
    const std::string_view found = rest_.substr(0, end);
    rest_ = is_last ? std::string_view{} : rest_.substr(end + 1);
    return found;
  }

  [[nodiscard]] std::uint64_t number(std::string_view name, std::string_view text, int numerals) const {
    if (numerals == 16 && text == "(nil)") return 0;  // how printf of the GNU library writes null
    const std::string_view digits =
        numerals == 16 && text.size() > 2 && text.substr(0, 2) == "0x" ? text.substr(2) : text;
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, numerals);
    if (error != std::errc{} || end != digits.data() + digits.size()) {
      throw wrong(std::string{name} + " is no number of 64 bits: '" + std::string{text} + "'");
    }
    return value;
  }

  /// HH:MM:SS.microseconds; also with a colon before the microseconds.
  [[nodiscard]] std::int64_t time_us(std::string_view text) const {
    const auto bad = [&] { return wrong("Time is not HH:MM:SS.microseconds: '" + std::string{text} + "'"); };
    if (text.size() != 15 || text[2] != ':' || text[5] != ':' || (text[8] != '.' && text[8] != ':')) throw bad();
    const auto part = [&](std::size_t first, std::size_t count, std::int64_t limit) {
      std::int64_t value = 0;
      for (const char c : text.substr(first, count)) {
        if (c < '0' || c > '9') throw bad();
        value = value * 10 + (c - '0');
      }
      if (value >= limit) throw bad();
      return value;
    };
    // 60 is a leap second.
    const std::int64_t seconds = (part(0, 2, 24) * 60 + part(3, 2, 60)) * 60 + part(6, 2, 61);
    return seconds * 1'000'000 + part(9, 6, 1'000'000);
  }

 private:
  std::string_view rest_;
  std::size_t number_;
};

}  // namespace detail

/// Reads an allocation log.
///
/// Needs   the header line first; empty lines and ends of lines of either kind are fine
/// Errors  usage_error that names the line and what is wrong with it
/// Threads any
[[nodiscard]] inline std::vector<allocation_record> parse_allocation_log(std::string_view text) {
  std::vector<allocation_record> records;
  bool has_header = false;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view{} : text.substr(end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    detail::allocation_line at{line, number};
    if (!has_header) {
      if (line != allocation_log_header) throw at.wrong("is not the header " + std::string{allocation_log_header});
      has_header = true;
      continue;
    }
    allocation_record record;
    record.thread = at.number("Thread", at.field("Thread"), 10);
    record.time_us = at.time_us(at.field("Time"));
    const std::string_view action = at.field("Action");
    if (action == "allocate") {
      record.action = allocation_action::allocate;
    } else if (action == "free") {
      record.action = allocation_action::free;
    } else if (action == "allocate failure") {
      record.action = allocation_action::allocate_failure;
    } else {
      throw at.wrong("Action is none of allocate, free, allocate failure: '" + std::string{action} + "'");
    }
    record.pointer = at.number("Pointer", at.field("Pointer"), 16);
    record.size_bytes = at.number("Size", at.field("Size"), 10);
    record.stream = at.number("Stream", at.field("Stream", true), 16);
    records.push_back(record);
  }
  if (!has_header) throw usage_error{"allocation log: empty, not even the header is there"};
  return records;
}

}  // namespace vtier
