// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a hierarchy has counted, as plain values; `observe/report` puts them into words.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/memory/slab.hpp>
#include <vtier/residency/role.hpp>

namespace vtier {

/// One tier at this moment.
///
/// Units   bytes
struct tier_statistics {
  std::string name;
  std::string place;  // a device, a node, a directory
  memory_kind kind = memory_kind::host;
  std::size_t budget_bytes = 0;
  std::size_t used_bytes = 0;
  std::size_t peak_bytes = 0;      // staging included
  std::size_t staging_bytes = 0;   // of used_bytes
  std::size_t reserved_bytes = 0;  // of used_bytes: reservations, and what is gathered for one that is waited for
  std::size_t largest_free_bytes = 0;
  std::array<std::size_t, role_count> role_bytes{};       // places by role
  std::array<std::size_t, role_count> role_peak_bytes{};  // the most at any time, each role by itself
};

/// Traffic from one tier to another.
///
/// Units   bytes, ns; bytes per ns, which are GB/s
struct link_statistics {
  std::string name;  // "pinned -> hbm"
  std::size_t from = 0;
  std::size_t to = 0;
  std::size_t moved_bytes = 0;
  std::size_t transfer_count = 0;
  std::array<std::size_t, role_count> role_moved_bytes{};  // moved_bytes by role

  // Of moved_bytes, what a larger target would have saved: bytes that go up into a tier that held them already and let
  // them go, in this step or the one before, and that nobody has written in between. Without steps: ever before.
  std::size_t swapped_bytes = 0;
  std::array<std::size_t, role_count> role_swapped_bytes{};  // swapped_bytes by role
  std::uint64_t swapped_step_count = 0;                      // steps in which there were any

  // With at least one transfer with files in flight, from when the first was asked for until the end of the last was
  // noticed. 0: not measured, as it is for copies in stream order.
  std::int64_t busy_ns = 0;
  double limit_bytes_per_ns = 0.0;  // what the link can do at best; 0: not known
};

/// A tensor under lease at this moment.
struct lease_statistics {
  std::uint64_t tensor = 0;  // its number, as messages have it
  role what = role::parameter;
  std::string tier;
  std::size_t size_bytes = 0;
  std::size_t lease_count = 0;
  std::int64_t age_ns = 0;  // for how long it has not been free
};

/// A step that was recorded, and how well its repetitions keep to it.
///
/// Units   ns; 0: not known
struct schedule_statistics {
  std::string name;
  bool planned = false;               // whether what moves is picked by a plan, and not by use
  std::uint64_t step_count = 0;       // times that it was run
  std::uint64_t deviation_count = 0;  // of these, those that used tensors otherwise than recorded
  std::int64_t last_step_ns = 0;      // how long the last one took
  std::int64_t compute_ns = 0;        // without any transfers
  std::int64_t bound_ns = 0;          // no schedule is faster, with times and rates as they were measured
  std::int64_t planned_ns = 0;        // what the plan says
  std::int64_t plan_ns = 0;           // what making the last plan took, on this machine's own clock
};

/// Everything that a hierarchy counts.
///
/// Units   bytes, ns, counts, since the hierarchy was made
struct statistics {
  std::vector<tier_statistics> tiers;  // fastest first
  std::vector<link_statistics> links;  // those that moved something
  std::size_t staging_bytes = 0;       // outside any tier: only where no tier is in host memory
  std::size_t tensor_count = 0;
  std::size_t tensor_bytes = 0;  // what all tensors hold, each once, without rounding
  std::size_t tensor_peak_bytes = 0;
  std::uint64_t step_count = 0;
  std::int64_t step_ns = 0;
  std::uint64_t lease_count = 0;
  std::uint64_t hit_count = 0;           // leases that found the bytes, or the place, where they were wanted
  std::uint64_t prefetch_hit_count = 0;  // of these, thanks to a prefetch
  std::uint64_t prefetch_dropped_count = 0;
  std::size_t prefetched_bytes = 0;       // that prefetches have moved
  std::size_t prefetch_unused_bytes = 0;  // of these, what left again before anybody used it
  std::uint64_t clean_drop_count = 0;     // evictions that needed no copy
  std::size_t evicted_ahead_bytes = 0;    // what watermarks sent away, copies that were cancelled later included
  std::uint64_t reservation_count = 0;    // that were had
  std::vector<lease_statistics> leased;   // tensors under lease, the longest first: what is never given back is on top
  std::int64_t blocked_ns = 0;            // host time spent waiting, all causes: the sum of those below
  std::int64_t blocked_fetch_ns = 0;      // for bytes on their way from files
  std::int64_t blocked_room_ns = 0;       // for room that a write to files had to make
  std::int64_t blocked_reserve_ns = 0;    // for reservations
  std::int64_t blocked_flush_ns = 0;      // in flushes, for writes to files
  std::int64_t blocked_events_ns = 0;     // in leases of the host and flushes, for kernels and copies
  std::vector<schedule_statistics> schedules;
  std::vector<unsigned> progress_cpus;  // that the progress thread is bound to, read back; empty: anywhere
  std::vector<std::string> notes;       // what the hierarchy does without on this machine
  std::vector<std::string> errors;      // what could not be thrown
};

/// What has been counted between two moments of one hierarchy.
///
/// Gives   counters as differences, errors that are new; what describes a moment (tiers, tensors, leases, notes) as it
///         is now
/// Threads any
[[nodiscard]] inline statistics counted_since(const statistics& before, statistics now) {
  const auto less = [](auto& counter, const auto& by) { counter -= (std::min)(counter, by); };
  const auto less_each = [&](auto& counters, const auto& by) {
    for (std::size_t i = 0; i < counters.size(); ++i) less(counters[i], by[i]);
  };
  for (link_statistics& l : now.links) {
    for (const link_statistics& b : before.links) {
      if (b.from != l.from || b.to != l.to) continue;
      less(l.moved_bytes, b.moved_bytes);
      less(l.transfer_count, b.transfer_count);
      less(l.swapped_bytes, b.swapped_bytes);
      less(l.swapped_step_count, b.swapped_step_count);
      less(l.busy_ns, b.busy_ns);
      less_each(l.role_moved_bytes, b.role_moved_bytes);
      less_each(l.role_swapped_bytes, b.role_swapped_bytes);
    }
  }
  for (schedule_statistics& s : now.schedules) {
    for (const schedule_statistics& b : before.schedules) {
      if (b.name != s.name) continue;
      less(s.step_count, b.step_count);
      less(s.deviation_count, b.deviation_count);
    }
  }
  for (const auto counter :
       {&statistics::step_count, &statistics::lease_count, &statistics::hit_count, &statistics::prefetch_hit_count,
        &statistics::prefetch_dropped_count, &statistics::clean_drop_count, &statistics::reservation_count}) {
    less(now.*counter, before.*counter);
  }
  for (const auto bytes :
       {&statistics::prefetched_bytes, &statistics::prefetch_unused_bytes, &statistics::evicted_ahead_bytes}) {
    less(now.*bytes, before.*bytes);
  }
  for (const auto ns :
       {&statistics::step_ns, &statistics::blocked_ns, &statistics::blocked_fetch_ns, &statistics::blocked_room_ns,
        &statistics::blocked_reserve_ns, &statistics::blocked_flush_ns, &statistics::blocked_events_ns}) {
    less(now.*ns, before.*ns);
  }
  const std::size_t told = (std::min)(before.errors.size(), now.errors.size());
  now.errors.erase(now.errors.begin(), now.errors.begin() + static_cast<std::ptrdiff_t>(told));
  return now;
}

}  // namespace vtier
