// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a step asks of one tier: uses, and the idle intervals between them. Leases are the uses of the first tier; for
// a tier below, the transfers from and to the tier above are.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/policy/step_trace.hpp>
#include <vtier/residency/access.hpp>

namespace vtier::detail {

inline constexpr std::uint32_t no_use = (std::numeric_limits<std::uint32_t>::max)();

/// A time in which a tier must hold a tensor.
///
/// Units   ticks: [begin, end)
struct tier_use {
  std::uint32_t tensor = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  bool reads = false;
  bool writes = false;
  std::uint32_t room_end = 0;  // where later than `end`: until then its room is not free, though nothing needs it
};

/// A time between two uses of a tensor, in which the tier may let it go.
///
/// Units   ticks: [begin, end), over the end of the lap where begin is not before end
struct idle_interval {
  std::uint32_t tensor = 0;
  std::uint32_t before = no_use;  // the use that it follows, and the one that it leads to
  std::uint32_t after = no_use;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::uint32_t segment = no_use;  // the use that wrote what is there; none where all of it was written before it came
  bool fetched = false;            // letting go costs a transfer up, because the next use reads
  bool worthless = false;          // letting go needs no write: the newest bytes are in the tier above by now
};

/// The uses of one tier in one lap.
///
/// Shape   uses in order of begin; tick_ns has an entry for each tick
struct tier_uses {
  std::vector<tier_use> uses;
  std::vector<std::int64_t> tick_ns;
  std::vector<idle_interval> idle;
  std::int64_t duration_ns = 0;

  [[nodiscard]] std::size_t tick_count() const noexcept { return tick_ns.size(); }

  /// Finds the idle intervals: of tensors that stay, each with a next use in this lap or the following; of tensors of
  /// the step, those that lead to a read.
  void find_idle(const std::vector<step_tensor>& tensors) {
    std::vector<std::uint32_t> first(tensors.size(), no_use);
    std::vector<std::uint32_t> latest(tensors.size(), no_use);
    std::vector<std::uint32_t> writer(tensors.size(), no_use);
    for (std::uint32_t i = 0; i < uses.size(); ++i) {  // what the lap before leaves: the last writer of each
      if (uses[i].writes && !tensors[uses[i].tensor].born) writer[uses[i].tensor] = i;
    }
    idle.clear();
    for (std::uint32_t i = 0; i < uses.size(); ++i) {
      const tier_use& u = uses[i];
      if (first[u.tensor] == no_use) first[u.tensor] = i;
      if (latest[u.tensor] != no_use) add(latest[u.tensor], i, writer[u.tensor]);
      if (u.writes) writer[u.tensor] = i;
      // Readers may overlap: the one that ends last counts.
      const std::uint32_t before = latest[u.tensor];
      if (before == no_use || uses[before].end <= u.end) latest[u.tensor] = i;
    }
    for (std::uint32_t t = 0; t < tensors.size(); ++t) {
      if (!tensors[t].born && first[t] != no_use) add(latest[t], first[t], writer[t]);
    }
  }

 private:
  void add(std::uint32_t before, std::uint32_t after, std::uint32_t writer) {
    const tier_use& u = uses[after];
    const bool wraps = after <= before;
    if (!wraps && u.begin <= uses[before].end) return;  // beside each other
    idle.push_back({u.tensor, before, after, uses[before].end, u.begin, writer, u.reads});
  }
};

/// Calls function(use, from): a tensor is held by this use from that tick until the end of the use, and was not held
/// by an earlier one from then on. Uses that overlap count once.
template <class Function>
void for_each_hold(std::size_t tensor_count, const tier_uses& in, Function&& function) {
  std::vector<std::uint32_t> until(tensor_count, 0);
  for (const tier_use& u : in.uses) {
    const std::uint32_t from = (std::max)(u.begin, until[u.tensor]);
    if (from >= u.end) continue;
    until[u.tensor] = u.end;
    function(u, from);
  }
}

/// The uses of the first tier: the leases.
[[nodiscard]] inline tier_uses uses_of(const step_trace& trace) {
  tier_uses result;
  result.tick_ns = trace.moment_ns;
  result.duration_ns = trace.duration_ns;
  result.uses.reserve(trace.leases.size());
  for (const step_lease& l : trace.leases) {
    result.uses.push_back({l.tensor, l.begin, l.end, reads(l.mode), writes(l.mode)});
  }
  // What is gone behind a moment is not yet gone at it.
  std::vector<std::uint32_t> last(trace.tensors.size(), no_use);
  for (std::uint32_t i = 0; i < result.uses.size(); ++i) {
    std::uint32_t& l = last[result.uses[i].tensor];
    if (l == no_use || result.uses[l].end < result.uses[i].end) l = i;
  }
  for (std::uint32_t t = 0; t < last.size(); ++t) {
    if (!trace.tensors[t].born || last[t] == no_use) continue;
    tier_use& u = result.uses[last[t]];
    u.room_end = (std::max)(u.end + 1, trace.tensors[t].gone);
  }
  result.find_idle(trace.tensors);
  return result;
}

}  // namespace vtier::detail
