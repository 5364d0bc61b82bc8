// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which idle intervals a tier keeps, and when what it lets go comes back: one candidate for a plan of one tier.
//
// Room is counted by tick. Uses take theirs first; then the intervals that are kept, best first; what is left, the
// headroom included, goes to fetches, each as early as there is room for it from then until its use, in the order in
// which they are due.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/policy/detail/room_profile.hpp>
#include <vtier/policy/detail/tier_uses.hpp>
#include <vtier/policy/step_trace.hpp>

namespace vtier::detail {

/// A fetch of a plan.
///
/// Units   ticks; laps: 0 where it is due in the lap in which it starts, 1 where in the next
struct planned_fetch {
  std::uint32_t interval = 0;
  std::uint32_t start = 0;
  std::uint32_t due = 0;
  std::uint32_t laps = 0;
};

/// What one tier keeps, lets go and fetches in every lap.
struct tier_plan {
  std::vector<char> kept;              // one for each idle interval
  std::vector<planned_fetch> fetches;  // in the order in which they are due, counted from the beginning of a lap
};

/// The room that uses take.
[[nodiscard]] inline room_profile profile_of(const std::vector<step_tensor>& tensors, const tier_uses& in) {
  room_profile result{in.tick_count()};
  for_each_hold(tensors.size(), in, [&](const tier_use& u, std::uint32_t from) {
    result.add(from, (std::max)(u.end, u.room_end), static_cast<std::int64_t>(tensors[u.tensor].size_bytes));
  });
  return result;
}

/// Keeps intervals in an order as far as there is room, and places the fetches of the others.
///
/// Needs   an order over all idle intervals; room for the uses alone
/// Cost    O(intervals log ticks)
[[nodiscard]] inline tier_plan pack_intervals(const std::vector<step_tensor>& tensors, const tier_uses& in,
                                              const room_profile& used, const std::vector<std::uint32_t>& order,
                                              std::int64_t capacity, std::int64_t headroom) {
  tier_plan result;
  result.kept.assign(in.idle.size(), 0);
  room_profile room = used;
  for (const std::uint32_t i : order) {
    const idle_interval& idle = in.idle[i];
    const auto size = static_cast<std::int64_t>(tensors[idle.tensor].size_bytes);
    if (room.most_around(idle.begin, idle.end) + size > capacity - headroom) continue;
    room.add_around(idle.begin, idle.end, size);
    result.kept[i] = 1;
  }
  std::vector<std::uint32_t> missed;
  for (std::uint32_t i = 0; i < in.idle.size(); ++i) {
    if (result.kept[i] == 0 && in.idle[i].fetched) missed.push_back(i);
  }
  std::sort(missed.begin(), missed.end(),
            [&](std::uint32_t a, std::uint32_t b) { return in.idle[a].end < in.idle[b].end; });
  // What is due early in a lap may start in the lap before: at a tick below zero. None starts before what is due
  // sooner.
  const auto ticks = static_cast<std::uint32_t>(in.tick_count());
  std::int64_t last_start = -static_cast<std::int64_t>(ticks);
  for (const std::uint32_t i : missed) {
    const idle_interval& idle = in.idle[i];
    const auto size = static_cast<std::int64_t>(tensors[idle.tensor].size_bytes);
    const std::int64_t room_max = capacity - size;
    // In this lap as far back as the interval, then over its beginning into the lap before.
    const bool wraps = idle.end <= idle.begin;
    const std::uint32_t low = wraps ? 0 : idle.begin;
    std::int64_t start = static_cast<std::int64_t>(room.earliest(low, idle.end, room_max));
    if (wraps && start == 0) {
      start = static_cast<std::int64_t>(room.earliest(idle.begin, ticks, room_max)) - static_cast<std::int64_t>(ticks);
    }
    start = (std::max)(start, (std::min)(last_start, static_cast<std::int64_t>(idle.end)));
    last_start = start;
    if (start == static_cast<std::int64_t>(idle.begin) - (wraps ? static_cast<std::int64_t>(ticks) : 0)) {
      room.add_around(idle.begin, idle.end, size);  // it would come back as soon as it has gone
      result.kept[i] = 1;
      continue;
    }
    planned_fetch f{i, 0, idle.end, 0};
    if (start < 0) {
      f.start = static_cast<std::uint32_t>(start + ticks);
      f.laps = 1;
      room.add(f.start, ticks, size);
      room.add(0, idle.end, size);
    } else {
      f.start = static_cast<std::uint32_t>(start);
      room.add(f.start, idle.end, size);
    }
    result.fetches.push_back(f);
  }
  return result;
}

}  // namespace vtier::detail
