// SPDX-License-Identifier: Apache-2.0
#pragma once

// The least bytes that must come back when a tier keeps fractions of tensors: furthest end first, lap after lap.
//
// Intervals that cost the same per byte and may be cut anywhere make a covering program whose matrix has consecutive
// ones; letting go of what ends last, each time the tier is too full, solves it exactly. What is kept when a lap begins
// is an outcome of the lap before, so laps are run until one ends as an earlier one did: what lies between repeats for
// ever, and since no number of laps can do with less, its mean is the least that a lap can cost on average. If none
// does in so many laps, the mean of all of them is a bound still: the first began with nothing owed.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>

namespace vtier::detail {

/// A stretch of ticks through which keeping a tensor saves its bytes.
///
/// Units   ticks: held at [begin, end), over the end of the lap where begin is not before end; bytes
struct kept_interval {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::int64_t size_bytes = 0;
};

/// The least bytes per lap that are not kept.
///
/// Needs   taken_bytes: what is taken at each tick by others; intervals of one tensor do not overlap
/// Gives   a number that no way of keeping can be below, exact for fractions where laps come to repeat
/// Cost    O(laps (ticks + intervals log intervals))
[[nodiscard]] inline double least_missed_bytes(const std::vector<kept_interval>& intervals,
                                               const std::vector<std::int64_t>& taken_bytes, std::int64_t capacity) {
  constexpr std::size_t laps_max = 64;
  const std::size_t ticks = taken_bytes.size();
  if (ticks == 0) return 0.0;
  std::vector<std::vector<std::uint32_t>> begins(ticks);
  std::vector<std::vector<std::uint32_t>> ends(ticks);
  for (std::uint32_t i = 0; i < intervals.size(); ++i) {
    begins[intervals[i].begin].push_back(i);
    ends[intervals[i].end].push_back(i);
  }
  std::vector<std::int64_t> kept(intervals.size(), -1);                    // -1: not begun
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::int64_t> active;  // by absolute end
  std::vector<std::vector<std::int64_t>> states;                           // after each lap
  std::vector<double> totals;
  double total = 0.0;
  for (std::size_t lap = 0; lap < laps_max; ++lap) {
    const std::uint64_t now = lap * ticks;
    std::int64_t held = 0;
    for (const auto& entry : active) held += entry.second;
    for (std::size_t t = 0; t < ticks; ++t) {
      for (const std::uint32_t i : ends[t]) {
        if (kept[i] < 0) continue;  // it would have begun before the first lap: nothing is counted for it
        const auto at = active.find({now + t, i});
        const std::int64_t bytes = at == active.end() ? 0 : at->second;
        if (at != active.end()) active.erase(at);
        held -= bytes;
        total += static_cast<double>(intervals[i].size_bytes - bytes);
      }
      for (const std::uint32_t i : begins[t]) {
        const std::uint64_t length = intervals[i].begin < intervals[i].end
                                         ? intervals[i].end - intervals[i].begin
                                         : ticks - intervals[i].begin + intervals[i].end;
        kept[i] = intervals[i].size_bytes;
        active.emplace(std::pair{now + t + length, i}, intervals[i].size_bytes);
        held += intervals[i].size_bytes;
      }
      while (held + taken_bytes[t] > capacity && !active.empty()) {
        const auto last = std::prev(active.end());
        const std::int64_t cut = (std::min)(last->second, held + taken_bytes[t] - capacity);
        last->second -= cut;
        held -= cut;
        if (last->second == 0) active.erase(last);
      }
    }
    std::vector<std::int64_t> state(intervals.size(), 0);
    for (const auto& entry : active) state[entry.first.second] = entry.second;
    for (std::size_t before = lap; before-- > 0;) {
      if (states[before] == state) return (total - totals[before]) / static_cast<double>(lap - before);
    }
    states.push_back(std::move(state));
    totals.push_back(total);
  }
  return total / static_cast<double>(laps_max);
}

}  // namespace vtier::detail
