// SPDX-License-Identifier: Apache-2.0
#pragma once

// Placement of a whole recorded step at once, where all lifetimes are known beforehand: a row beside the allocators,
// that decide call by call.
//
// A file of its own because it is measured otherwise: one computation for all blocks, nothing at run time.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <vtier/core/clock.hpp>

#include "memory/allocator_table.hpp"
#include "support/memory_trace.hpp"
#include "support/model_steps.hpp"
#include "support/spread.hpp"

#if __has_include(<vtier/memory/pack.hpp>)
#include <vtier/memory/pack.hpp>
#endif

namespace vtier::bench {

/// The end of the last block; looks whether blocks that live at once lie apart.
///
/// Units   bytes
/// Needs   one offset for each lifetime
/// Errors  std::runtime_error where two overlap
[[nodiscard]] inline std::size_t checked_extent(const std::vector<block_lifetime>& blocks, std::size_t event_count,
                                                const std::vector<std::size_t>& offsets_bytes) {
  if (offsets_bytes.size() != blocks.size()) throw std::runtime_error("not as many offsets as blocks");
  std::vector<std::vector<std::size_t>> ends(event_count + 1);
  std::vector<std::optional<std::size_t>> begins(event_count);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    begins[blocks[i].begin] = i;
    ends[blocks[i].end].push_back(i);
  }
  std::size_t extent = 0;
  std::map<std::size_t, std::size_t> live;  // begin: end
  for (std::size_t at = 0; at < event_count; ++at) {
    for (const std::size_t i : ends[at]) live.erase(offsets_bytes[i]);
    if (!begins[at]) continue;
    const std::size_t first = offsets_bytes[*begins[at]];
    const std::size_t end = first + blocks[*begins[at]].size_bytes;
    const auto next = live.lower_bound(first);
    if ((next != live.end() && next->first < end) || (next != live.begin() && std::prev(next)->second > first)) {
      throw std::runtime_error("two blocks that live at once overlap");
    }
    live.emplace_hint(next, first, end);
    extent = (std::max)(extent, end);
  }
  return extent;
}

/// Packs a trace and gives its row: the time of the whole packing, shared out among the blocks.
///
/// Needs   `pack`: a function from the lifetimes to one offset for each
template <class Pack>
[[nodiscard]] allocator_row packed_row(const std::string& allocator, const std::string& model,
                                       const memory_trace& trace, std::size_t run_count, Pack&& pack) {
  const std::vector<block_lifetime> blocks = lifetimes(trace);
  const steady_clock clock;
  std::vector<double> ns;
  std::vector<std::size_t> offsets_bytes;
  double sum_bytes = 0.0;
  std::size_t live_count = 0;
  std::size_t most_live = 0;
  for (const auto& e : trace.events) {
    live_count = e.what == memory_event::kind::allocate ? live_count + 1 : live_count - 1;
    most_live = (std::max)(most_live, live_count);
  }
  for (const auto& b : blocks) sum_bytes += static_cast<double>(b.size_bytes);
  for (std::size_t run = 0; run < run_count + 1; ++run) {  // the first one warms up
    const auto began = clock.now_ns();
    offsets_bytes = pack(blocks);
    const auto took = clock.now_ns() - began;
    if (run > 0) ns.push_back(static_cast<double>(took) / static_cast<double>(blocks.size()));
  }
  allocator_row row;
  row.allocator = allocator;
  row.workload = model;
  row.live_count = most_live;
  row.mean_bytes = sum_bytes / static_cast<double>(blocks.size());
  row.ns_per_pair = spread_of(ns);
  row.reserved_over_live = static_cast<double>(checked_extent(blocks, trace.events.size(), offsets_bytes)) /
                           static_cast<double>(peak_live_bytes(trace));
  row.run_count = run_count;
  row.pair_count = run_count * blocks.size();
  return row;
}

/// What the row of an offline packing is called; its time is not one of calls and belongs in no picture of these.
inline const std::string packing_name = "vtier pack (offline)";

/// Adds a row for a model, once the library has a packing.
inline void pack_model([[maybe_unused]] allocator_table& to, [[maybe_unused]] const model_shape& shape,
                       [[maybe_unused]] std::size_t run_count, [[maybe_unused]] std::uint64_t seed) {
#if __has_include(<vtier/memory/pack.hpp>)
  to.rows.push_back(packed_row(packing_name, shape.name, record_step(shape, seed), run_count,
                               [](const std::vector<block_lifetime>& blocks) {
                                 std::vector<vtier::lifetime> all;
                                 for (const auto& b : blocks) all.push_back({b.size_bytes, b.begin, b.end});
                                 return vtier::pack(all).offset_bytes;
                               }));
#endif
}

}  // namespace vtier::bench
