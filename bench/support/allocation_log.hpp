// SPDX-License-Identifier: Apache-2.0
#pragma once

// Allocation logs of other programs as traces: the six columns that RMM's logging adaptor writes and its replay tool
// reads, Thread,Time,Action,Pointer,Size,Stream.

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <ios>
#include <istream>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <vector>

#include <vtier/residency/role.hpp>

#include "support/memory_trace.hpp"

namespace vtier::bench {

/// A log as a trace, and what in it could not be part of one.
struct log_trace {
  memory_trace trace;
  std::size_t thread_count = 0;
  std::size_t failure_count = 0;       // allocations that had failed
  std::size_t unknown_free_count = 0;  // frees of what the log does not allocate
  std::size_t unfreed_count = 0;       // blocks that the log leaves alive
};

namespace detail {

[[nodiscard]] inline std::optional<std::uint64_t> log_number(std::string_view text) {
  if (text == "(nil)") return 0;
  const bool is_hexadecimal = text.substr(0, 2) == "0x" || text.substr(0, 2) == "0X";
  if (is_hexadecimal) text.remove_prefix(2);
  std::uint64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value, is_hexadecimal ? 16 : 10);
  if (problem != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// Cuts a line at its commas.
///
/// Gives   empty where there are not six fields
[[nodiscard]] inline std::optional<std::array<std::string_view, 6>> log_fields(std::string_view line) {
  std::array<std::string_view, 6> result;
  for (std::size_t i = 0; i < result.size(); ++i) {
    const std::size_t comma = line.find(',');
    if ((comma == std::string_view::npos) != (i + 1 == result.size())) return std::nullopt;
    result[i] = line.substr(0, comma);
    line.remove_prefix(comma == std::string_view::npos ? line.size() : comma + 1);
  }
  return result;
}

}  // namespace detail

/// Reads a log.
///
/// Gives   events in the order of the lines, whichever thread they came from; what the log leaves alive is freed at the
///         end, so that the trace may be repeated; allocations of no bytes and failed ones are left out. An address
///         that is allocated twice without a free between was freed unseen: its first block ends there.
/// Errors  std::runtime_error that names the line
[[nodiscard]] inline log_trace read_allocation_log(std::istream& from) {
  struct alive {
    std::size_t id = 0;
    std::size_t size_bytes = 0;
  };
  constexpr std::uint64_t most_bytes = std::uint64_t{1} << 46U;
  log_trace result;
  std::unordered_map<std::uint64_t, alive> live;
  std::unordered_map<std::string, std::size_t> threads;
  auto& events = result.trace.events;
  const auto free = [&](const alive& block) {
    events.push_back({memory_event::kind::free, role::workspace, 0, block.id, block.size_bytes});
  };
  std::string line;
  for (std::size_t number = 1; std::getline(from, line); ++number) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.empty() || line.rfind("Thread,", 0) == 0) continue;
    const auto fields = detail::log_fields(line);
    const auto refuse = [&](const std::string& what) {
      return std::runtime_error("line " + std::to_string(number) + " of the log: " + what + ": " + line);
    };
    if (!fields) throw refuse("six fields are wanted");
    const auto pointer = detail::log_number((*fields)[3]);
    const auto size = detail::log_number((*fields)[4]);
    if (!pointer || !size || *size > most_bytes) throw refuse("no pointer or no size");
    ++threads[std::string{(*fields)[0]}];
    const std::string_view action = (*fields)[2];
    const auto at = live.find(*pointer);
    if (action == "allocate") {
      if (*size == 0) continue;
      if (at != live.end()) {
        free(at->second);
        live.erase(at);
      }
      const std::size_t id = result.trace.block_count++;
      events.push_back({memory_event::kind::allocate, role::workspace, 0, id, *size});
      live.emplace(*pointer, alive{id, *size});
    } else if (action == "free") {
      if (at == live.end()) {
        if (*size > 0) ++result.unknown_free_count;
        continue;
      }
      free(at->second);
      live.erase(at);
    } else if (action == "allocate failure") {
      ++result.failure_count;
    } else {
      throw refuse("an action is allocate, free or allocate failure");
    }
  }
  result.thread_count = threads.size();
  result.unfreed_count = live.size();
  std::vector<alive> rest;
  for (const auto& [pointer, block] : live) rest.push_back(block);
  std::sort(rest.begin(), rest.end(), [](const alive& a, const alive& b) { return a.id < b.id; });
  for (const alive& block : rest) free(block);
  return result;
}

/// Writes a trace as a log: of one thread, with its ids as addresses.
inline void write_allocation_log(std::ostream& to, const memory_trace& trace) {
  to << "Thread,Time,Action,Pointer,Size,Stream\n";
  for (const auto& e : trace.events) {
    to << "1,00:00:00.000000," << (e.what == memory_event::kind::allocate ? "allocate" : "free") << ",0x" << std::hex
       << (e.id + 1) * 512 << std::dec << ',' << e.size_bytes << ",0x0\n";
  }
}

}  // namespace vtier::bench
