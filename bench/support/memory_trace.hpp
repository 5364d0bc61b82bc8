// SPDX-License-Identifier: Apache-2.0
#pragma once

// Allocations and frees in order, whoever recorded them, and what can be read off them: lifetimes and the peak.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <vtier/residency/role.hpp>

namespace vtier::bench {

/// One allocation or one free.
///
/// Units   bytes; layer: 0 to layers - 1, and `layers` for the embedding and the head
struct memory_event {
  enum class kind : std::uint8_t { allocate, free };
  kind what = kind::allocate;
  role use = role::workspace;
  std::uint32_t layer = 0;
  std::size_t id = 0;  // of the block: unique within a trace
  std::size_t size_bytes = 0;
};

/// What stays, then one step that frees all that it allocates: the step may be repeated.
struct memory_trace {
  std::vector<memory_event> events;
  std::size_t step_begin = 0;   // events before it allocate parameters and optimizer state
  std::size_t block_count = 0;  // ids are less than this
};

/// One block of a trace: it lives from event `begin` until before event `end`.
struct block_lifetime {
  std::size_t id = 0;
  std::size_t size_bytes = 0;
  std::size_t begin = 0;
  std::size_t end = 0;  // events.size() where it stays
  role use = role::workspace;
  std::uint32_t layer = 0;
};

/// The blocks of a trace in the order of their allocation.
///
/// Threads any
[[nodiscard]] inline std::vector<block_lifetime> lifetimes(const memory_trace& trace) {
  std::vector<block_lifetime> result;
  std::vector<std::size_t> place(trace.block_count, 0);
  for (std::size_t at = 0; at < trace.events.size(); ++at) {
    const memory_event& e = trace.events[at];
    if (e.what == memory_event::kind::free) {
      result[place[e.id]].end = at;
    } else {
      place[e.id] = result.size();
      result.push_back({e.id, e.size_bytes, at, trace.events.size(), e.use, e.layer});
    }
  }
  return result;
}

/// The most bytes that live at once.
///
/// Units   bytes
[[nodiscard]] inline std::size_t peak_live_bytes(const memory_trace& trace) {
  std::size_t live = 0;
  std::size_t peak = 0;
  for (const memory_event& e : trace.events) {
    live = e.what == memory_event::kind::allocate ? live + e.size_bytes : live - e.size_bytes;
    peak = (std::max)(peak, live);
  }
  return peak;
}

}  // namespace vtier::bench
