// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a run gave, compared and written down: the table at the end and the JSON file.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iomanip>
#include <optional>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/runtime/statistics.hpp>

namespace train_gpt {

/// A finished run.
struct run_result {
  std::vector<double> losses;     // one for each step taken
  std::vector<float> parameters;  // at the end; only where they are to be compared
  double seconds = 0;             // from the first step to the end of the last
  vtier::statistics counted;      // at the end of the last step
  bool interrupted = false;
};

/// Where two runs first differ; empty where all bits are equal.
///
/// Needs   runs of equally many steps
[[nodiscard]] inline std::optional<std::string> first_difference(const run_result& a, const run_result& b) {
  const auto exact = [](double x) {
    std::ostringstream text;
    text << std::setprecision(17) << x;
    return text.str();
  };
  for (std::size_t i = 0; i < a.losses.size() && i < b.losses.size(); ++i) {
    if (std::bit_cast<std::uint64_t>(a.losses[i]) == std::bit_cast<std::uint64_t>(b.losses[i])) continue;
    return "at step " + std::to_string(i + 1) + ", losses " + exact(a.losses[i]) + " and " + exact(b.losses[i]);
  }
  if (a.losses.size() != b.losses.size() || a.parameters.size() != b.parameters.size()) return "in length";
  for (std::size_t i = 0; i < a.parameters.size(); ++i) {
    if (std::bit_cast<std::uint32_t>(a.parameters[i]) == std::bit_cast<std::uint32_t>(b.parameters[i])) continue;
    return "in parameter " + std::to_string(i) + " at the end, after step " + std::to_string(a.losses.size()) + ": " +
           exact(static_cast<double>(a.parameters[i])) + " and " + exact(static_cast<double>(b.parameters[i]));
  }
  return std::nullopt;
}

/// Everything that is told at the end.
struct summary {
  std::size_t steps = 0;
  std::size_t state_bytes = 0;  // the most that tensors held at one time
  bool compared = false;
  std::optional<std::string> difference;  // where compared
  double seconds_resident = 0;            // where compared
  const run_result* tiered = nullptr;
};

/// Prints the tables, and last the verdict of a comparison.
inline void print(std::ostream& to, const summary& s) {
  std::ostringstream text;
  const auto cell = [&](const std::string& value) { text << "  " << std::right << std::setw(12) << value; };
  const auto left = [&](const std::string& value) { text << "  " << std::left << std::setw(16) << value; };
  left("tier");
  for (const char* const title : {"budget", "peak", "peak share"}) cell(title);
  text << '\n';
  for (const auto& t : s.tiered->counted.tiers) {
    left(t.name);
    cell(vtier::format_bytes(t.budget_bytes));
    cell(vtier::format_bytes(t.peak_bytes));
    cell(std::to_string(t.budget_bytes == 0 ? 0 : t.peak_bytes * 100 / t.budget_bytes) + " %");
    text << '\n';
  }
  left("link");
  cell("moved");
  cell("a step");
  text << '\n';
  for (const auto& l : s.tiered->counted.links) {
    left(l.name);
    cell(vtier::format_bytes(l.moved_bytes));
    cell(vtier::format_bytes(l.moved_bytes / (s.steps == 0 ? 1 : s.steps)));
    text << '\n';
  }
  text << "  tensors at most " << vtier::format_bytes(s.state_bytes) << " at one time, " << s.steps << " steps";
  if (!s.tiered->losses.empty()) {
    text << std::fixed << std::setprecision(4) << ", first loss " << s.tiered->losses.front() << ", final loss "
         << s.tiered->losses.back();
  }
  text << std::fixed << std::setprecision(2) << "\n  ";
  if (s.compared) text << "resident " << s.seconds_resident << " s, ";
  text << "tiered " << s.tiered->seconds << " s";
  if (s.compared && s.seconds_resident > 0) text << ", ratio " << s.tiered->seconds / s.seconds_resident;
  text << '\n';
  if (s.compared)
    text << "identical: " << (s.difference ? "no (first difference " + *s.difference + ")" : "yes") << '\n';
  to << "\n" << text.str() << std::flush;
}

namespace detail {

inline std::string quoted(std::string_view text) {
  std::ostringstream result;
  result << '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      result << '\\' << c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      result << "\\u" << std::hex << std::setfill('0') << std::setw(4) << static_cast<int>(c) << std::dec;
    } else {
      result << c;
    }
  }
  result << '"';
  return result.str();
}

// JSON has no infinity and no NaN.
inline std::string number(double value) {
  if (!(value - value == 0.0)) return "null";
  std::ostringstream text;
  text << std::setprecision(17) << value;
  return text.str();
}

}  // namespace detail

/// Writes the results as JSON; what was not compared is null.
inline void write_json(std::ostream& to, const summary& s) {
  using detail::number;
  using detail::quoted;
  const auto& counted = s.tiered->counted;
  to << "{\n  \"steps\": " << s.steps
     << ",\n  \"identical\": " << (s.compared ? (s.difference ? "false" : "true") : "null")
     << ",\n  \"state_bytes\": " << s.state_bytes << ",\n  \"tiers\": [";
  const char* before = "\n";
  for (const auto& t : counted.tiers) {
    to << before << "    {\"name\": " << quoted(t.name) << ", \"budget_bytes\": " << t.budget_bytes
       << ", \"peak_bytes\": " << t.peak_bytes << "}";
    before = ",\n";
  }
  to << "\n  ],\n  \"seconds_resident\": " << (s.compared ? number(s.seconds_resident) : "null")
     << ",\n  \"seconds_tiered\": " << number(s.tiered->seconds) << ",\n  \"moved_bytes\": {";
  before = "\n";
  for (const auto& l : counted.links) {
    to << before << "    " << quoted(l.name) << ": " << l.moved_bytes;
    before = ",\n";
  }
  const bool any = !s.tiered->losses.empty();
  to << "\n  },\n  \"first_loss\": " << (any ? number(s.tiered->losses.front()) : "null")
     << ",\n  \"final_loss\": " << (any ? number(s.tiered->losses.back()) : "null") << "\n}\n";
}

/// Writes the results as JSON to a file.
///
/// Errors  std::runtime_error where the file cannot be written
inline void write_json_file(const std::string& path, const summary& s) {
  std::ofstream file{path, std::ios::trunc};
  write_json(file, s);
  file.close();
  if (!file) throw std::runtime_error("cannot write " + path + ": give --json another place");
}

}  // namespace train_gpt
