// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where in a tier each tensor lies while a plan keeps it there: fixed places, the same in every lap.
//
// A tensor needs one piece of address space. Whoever takes places as they come finds after a while that the tier has
// room but no piece of it is long enough; a plan knows all its comings and goings, so it can find places beforehand.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/policy/detail/tier_replay.hpp>
#include <vtier/policy/detail/tier_uses.hpp>
#include <vtier/policy/step_trace.hpp>

namespace vtier::detail {

/// A time that a tensor is in a tier.
///
/// Units   half ticks, so that what leaves behind a tick makes room for what comes behind it: [begin, end); over the
///         end of the lap where begin is not before end, which is all of it where they are equal; bytes
struct stay {
  std::uint32_t tensor = 0;
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  std::int64_t size_bytes = 0;

  [[nodiscard]] bool wraps() const noexcept { return begin >= end; }
  [[nodiscard]] bool meets(const stay& other) const noexcept {
    if (wraps() && other.wraps()) return true;
    if (wraps()) return other.begin < end || other.end > begin;
    if (other.wraps()) return begin < other.end || end > other.begin;
    return begin < other.end && other.begin < end;
  }
};

/// The stays of a lap. What is written down before it goes stays for that share of the time that the write takes: who
/// comes to its place need not wait for so long.
///
/// Needs   the uses of a tier, what is held when a lap begins, and what is done in it; patience from 0 to 1
[[nodiscard]] inline std::vector<stay> stays_of(const std::vector<step_tensor>& tensors, const tier_uses& in,
                                                const std::vector<std::uint32_t>& held_at_start, const replay_log& log,
                                                double patience) {
  const std::vector<replay_action>& actions = log.actions;
  constexpr std::uint32_t away = no_use;
  constexpr std::uint32_t from_before = no_use - 1;
  std::vector<std::uint32_t> since(tensors.size(), away);
  std::vector<std::uint32_t> left(tensors.size(), away);  // when what was held at the start has gone
  std::vector<std::uint32_t> last_use(tensors.size(), no_use);
  std::vector<std::uint32_t> begins(in.tick_count(), no_use);
  std::vector<std::uint32_t> ends(in.tick_count(), no_use);
  for (std::uint32_t i = 0; i < in.uses.size(); ++i) {
    begins[in.uses[i].begin] = i;
    ends[in.uses[i].end] = i;
    std::uint32_t& last = last_use[in.uses[i].tensor];
    if (last == no_use || in.uses[last].end < in.uses[i].end) last = i;
  }
  for (const std::uint32_t t : held_at_start) since[t] = from_before;
  std::vector<stay> result;
  const auto leave = [&](std::uint32_t tensor, std::uint32_t when) {
    if (since[tensor] == away) return;
    if (since[tensor] == from_before) {
      left[tensor] = when;
    } else {
      result.push_back({tensor, since[tensor], when, static_cast<std::int64_t>(tensors[tensor].size_bytes)});
    }
    since[tensor] = away;
  };
  // Half a tick behind the one by which so much of the time has passed that writing it down takes.
  const auto written_by = [&](const replay_action& a) {
    const double when = log.tick_ns[a.tick] + patience * (a.done_ns - log.tick_ns[a.tick]);
    const auto at = std::lower_bound(log.tick_ns.begin() + a.tick, log.tick_ns.end(), when) - log.tick_ns.begin();
    const std::size_t last = (std::min)(static_cast<std::size_t>(at), in.tick_count() - 1);
    return 2 * static_cast<std::uint32_t>((std::max)(last, std::size_t{a.tick})) + 1;
  };
  std::size_t next = 0;
  for (std::uint32_t t = 0; t < in.tick_count(); ++t) {
    if (begins[t] != no_use) {
      const std::uint32_t tensor = in.uses[begins[t]].tensor;
      if (since[tensor] == away) since[tensor] = 2 * t;
    }
    if (ends[t] != no_use) {
      const std::uint32_t tensor = in.uses[ends[t]].tensor;
      if (tensors[tensor].born && last_use[tensor] == ends[t]) {
        leave(tensor, 2 * (std::max)(t + 1, in.uses[ends[t]].room_end));
      }
    }
    for (; next < actions.size() && actions[next].tick == t; ++next) {
      const replay_action& a = actions[next];
      if (a.what == replay_action_kind::fetch && since[a.tensor] == away) {
        // What is fetched by the use that needs it is placed with that.
        const bool at_use = begins[t] != no_use && in.uses[begins[t]].tensor == a.tensor;
        since[a.tensor] = at_use ? 2 * t : 2 * t + 1;
      } else if (a.what == replay_action_kind::evict || a.what == replay_action_kind::drop) {
        leave(a.tensor, written_by(a));
      }
    }
  }
  const auto lap = static_cast<std::uint32_t>(2 * in.tick_count());
  for (std::uint32_t t = 0; t < tensors.size(); ++t) {
    if (since[t] == away) continue;
    const auto size = static_cast<std::int64_t>(tensors[t].size_bytes);
    if (since[t] == from_before) {
      result.push_back({t, 0, 0, size});
    } else {
      result.push_back({t, since[t], left[t] == away ? lap : left[t], size});
    }
    left[t] = away;
  }
  return result;
}

/// Places for stays.
///
/// Units   bytes; unplaced: there was no place below the capacity
struct stay_places {
  static constexpr std::size_t unplaced = ~std::size_t{0};
  std::vector<std::size_t> offset_bytes;  // one for each stay
  std::int64_t size_bytes = 0;            // the highest end of a place that all would need
};

/// Finds places such that no two that are there at once share a byte: each in turn at the lowest one that is free while
/// it stays, in the best of some orders.
///
/// Cost    O(n^2) an order; beyond 16,384 stays nothing is placed
[[nodiscard]] inline stay_places place_stays(const std::vector<stay>& stays, std::uint32_t lap, std::int64_t capacity) {
  constexpr std::size_t stays_max = 16'384;
  constexpr std::size_t comparisons_max = 200'000'000;
  stay_places best;
  best.size_bytes = (std::numeric_limits<std::int64_t>::max)();
  if (stays.size() > stays_max) return best;
  const auto length = [&](const stay& s) {
    return static_cast<double>(s.begin < s.end ? s.end - s.begin : lap - s.begin + s.end);
  };
  const auto size = [](const stay& s) { return static_cast<double>(s.size_bytes); };
  std::vector<std::size_t> order(stays.size());
  std::vector<std::size_t> placed;
  std::vector<std::int64_t> offset(stays.size(), 0);
  std::size_t comparisons = 0;
  const auto attempt = [&](const auto& key) {
    if (best.size_bytes <= capacity || comparisons > comparisons_max) return;
    std::vector<double> keys(stays.size());
    for (std::size_t i = 0; i < stays.size(); ++i) keys[i] = key(stays[i]);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return keys[a] > keys[b]; });
    placed.clear();
    std::int64_t top = 0;
    for (const std::size_t i : order) {
      std::int64_t at = 0;
      for (const std::size_t other : placed) {  // in order of offset
        if (offset[other] >= at + stays[i].size_bytes) break;
        if (offset[other] + stays[other].size_bytes <= at || !stays[i].meets(stays[other])) continue;
        at = offset[other] + stays[other].size_bytes;
      }
      comparisons += placed.size();
      offset[i] = at;
      placed.insert(std::upper_bound(placed.begin(), placed.end(), at,
                                     [&](std::int64_t where, std::size_t p) { return where < offset[p]; }),
                    i);
      top = (std::max)(top, at + stays[i].size_bytes);
    }
    if (top >= best.size_bytes) return;
    best.size_bytes = top;
    best.offset_bytes.assign(offset.begin(), offset.end());
  };
  attempt([&](const stay& s) { return length(s); });
  attempt([&](const stay& s) { return size(s) * length(s); });
  attempt([&](const stay& s) { return size(s); });
  attempt([&](const stay& s) { return (s.wraps() ? 2.0 * lap : 0.0) + length(s); });
  attempt([&](const stay& s) { return -static_cast<double>(s.begin); });
  for (std::size_t i = 0; i < best.offset_bytes.size(); ++i) {
    if (static_cast<std::int64_t>(best.offset_bytes[i]) + stays[i].size_bytes > capacity) {
      best.offset_bytes[i] = stay_places::unplaced;
    }
  }
  return best;
}

}  // namespace vtier::detail
