// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a hierarchy has counted, as plain values; `observe/report` puts them into words.

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
struct link_statistics {
  std::string name;  // "pinned -> hbm"
  std::size_t from = 0;
  std::size_t to = 0;
  std::size_t moved_bytes = 0;
  std::size_t transfer_count = 0;
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
  std::uint64_t clean_drop_count = 0;    // evictions that needed no copy
  std::size_t evicted_ahead_bytes = 0;   // what watermarks sent away, copies that were cancelled later included
  std::uint64_t reservation_count = 0;   // that were had
  std::vector<lease_statistics> leased;  // tensors under lease, the longest first: what is never given back is on top
  std::int64_t blocked_ns = 0;           // host time spent waiting in leases and for reservations, all causes
  std::int64_t blocked_fetch_ns = 0;     // for bytes on their way from files
  std::int64_t blocked_room_ns = 0;      // for room that a write to files had to make
  std::int64_t blocked_reserve_ns = 0;   // for reservations
  std::vector<unsigned> progress_cpus;   // that the progress thread is bound to, read back; empty: anywhere
  std::vector<std::string> notes;        // what the hierarchy does without on this machine
  std::vector<std::string> errors;       // what could not be thrown
};

}  // namespace vtier
