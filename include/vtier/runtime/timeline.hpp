// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a hierarchy did and when, as plain values: leases, transfers, stalls with their cause, steps, and how full the
// tiers were; `observe/trace` makes a picture of them.
//
// A file of its own beside statistics.hpp: those are sums that cost nothing, this is a record of single events, bounded
// by `options.timeline_events_max`, that is off by default. Times are the host's view: a kernel or a copy in stream
// order runs later than the event that stands for it.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/memory/slab.hpp>
#include <vtier/residency/access.hpp>
#include <vtier/residency/role.hpp>
#include <vtier/transfer/transfer.hpp>

namespace vtier {

/// What an event of a timeline tells of.
///
/// lease: from when the caller has it until it is ended on the host. transfer: from when it was asked for until its end
/// was noticed; waiting in the queue of a drive is part of it. stall: the host was blocked. step: the scope of one.
/// occupancy: from this moment on so many bytes of a tier are taken.
enum class timeline_kind : std::uint8_t { lease, transfer, stall, step, occupancy };

/// Why the host was blocked.
///
/// fetch: bytes on their way from files. room: a write to files that makes room, or that has to end first. reserve: a
/// reservation. events: a lease of the host that waits for kernels and copies. flush: a flush that writes to files.
enum class stall_cause : std::uint8_t { fetch, room, reserve, events, flush };

/// The name of a cause, as the enumerator is written.
///
/// Threads any
[[nodiscard]] constexpr std::string_view name(stall_cause why) noexcept {
  switch (why) {
    case stall_cause::fetch: return "fetch";
    case stall_cause::room: return "room";
    case stall_cause::reserve: return "reserve";
    case stall_cause::events: return "events";
    case stall_cause::flush: return "flush";
  }
  return "unknown";
}

/// One thing that happened.
///
/// Units   ns in the device's time (now_ns); bytes
/// Gives   fields that its kind names; the others are as they are here
struct timeline_event {
  timeline_kind kind = timeline_kind::lease;
  role what = role::parameter;                  // lease, transfer, stall: of the tensor
  access mode = access::read;                   // lease
  bool on_host = false;                         // lease
  stall_cause cause = stall_cause::fetch;       // stall
  urgency priority = urgency::demand;           // transfer: the highest that it had
  transfer_state ended = transfer_state::done;  // transfer: done, failed or cancelled
  bool enqueued = false;                        // transfer: a copy in stream order; the host knows only when it was
                                                // enqueued, which is its begin and its end
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;     // not before begin_ns; of an occupancy the same
  std::uint64_t number = 0;    // of the tensor, as messages have it, 0 for a reservation; of the step, counted from 1
  std::size_t size_bytes = 0;  // of the tensor or the reservation; occupancy: bytes taken, staging included
  std::size_t from = 0;        // transfer: the tier that it reads
  std::size_t tier = 0;        // where a lease is, bytes or room are waited for, a transfer goes to
  friend bool operator==(const timeline_event&, const timeline_event&) = default;
};

/// A tier of a timeline, as it was when the copy was made.
///
/// Units   bytes
struct timeline_tier {
  std::string name;
  memory_kind kind = memory_kind::host;
  std::size_t budget_bytes = 0;
  std::size_t used_bytes = 0;
};

/// What a hierarchy has recorded.
///
/// Shape   events in order of their begin, tiers fastest first
/// Gives   leases, transfers and stalls that are over; those in force are not in it yet. Moves within a tier are in
///         none
/// Threads as any value
struct timeline {
  std::vector<timeline_tier> tiers;
  std::vector<timeline_event> events;
  std::uint64_t lost_count = 0;  // events that newer ones have taken the place of
  std::int64_t now_ns = 0;       // when the copy was made
};

}  // namespace vtier
