// SPDX-License-Identifier: Apache-2.0
#pragma once

// Allocation logs of other programs as traces: the six columns that RMM's logging adaptor writes and its replay tool
// reads, Thread,Time,Action,Pointer,Size,Stream.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <istream>
#include <iterator>
#include <ostream>
#include <set>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

#include <vtier/memory/allocation_log.hpp>
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

/// Reads a log.
///
/// Gives   events in the order of the lines, whichever thread they came from; what the log leaves alive is freed at the
///         end, so that the trace may be repeated; allocations of no bytes and failed ones are left out. An address
///         that is allocated twice without a free between was freed unseen: its first block ends there.
/// Errors  usage_error that names the line; std::runtime_error for a size beyond 64 TiB, which no trace has
[[nodiscard]] inline log_trace read_allocation_log(std::istream& from) {
  struct alive {
    std::size_t id = 0;
    std::size_t size_bytes = 0;
  };
  constexpr std::uint64_t most_bytes = std::uint64_t{1} << 46U;
  log_trace result;
  std::unordered_map<std::uint64_t, alive> live;
  std::set<std::uint64_t> threads;
  auto& events = result.trace.events;
  const auto free = [&](const alive& block) {
    events.push_back({memory_event::kind::free, role::workspace, 0, block.id, block.size_bytes});
  };
  const std::string text{std::istreambuf_iterator<char>{from}, {}};
  for (const allocation_record& record : parse_allocation_log(text)) {
    if (record.size_bytes > most_bytes) {
      throw std::runtime_error("an allocation log with a block of " + std::to_string(record.size_bytes) + " bytes");
    }
    threads.insert(record.thread);
    const auto at = live.find(record.pointer);
    switch (record.action) {
      case allocation_action::allocate: {
        if (record.size_bytes == 0) break;
        if (at != live.end()) {
          free(at->second);
          live.erase(at);
        }
        const std::size_t id = result.trace.block_count++;
        events.push_back({memory_event::kind::allocate, role::workspace, 0, id, record.size_bytes});
        live.emplace(record.pointer, alive{id, record.size_bytes});
        break;
      }
      case allocation_action::free:
        if (at != live.end()) {
          free(at->second);
          live.erase(at);
        } else if (record.size_bytes > 0) {
          ++result.unknown_free_count;
        }
        break;
      case allocation_action::allocate_failure: ++result.failure_count; break;
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
  std::string text{allocation_log_header};
  text += '\n';
  for (const auto& e : trace.events) {
    allocation_record record;
    record.thread = 1;
    record.action = e.what == memory_event::kind::allocate ? allocation_action::allocate : allocation_action::free;
    record.pointer = (e.id + 1) * 512;
    record.size_bytes = e.size_bytes;
    append_allocation_record(text, record);
  }
  to << text;
}

}  // namespace vtier::bench
