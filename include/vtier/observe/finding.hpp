// SPDX-License-Identifier: Apache-2.0
#pragma once

// What can be wrong with a run or a machine: the kinds of findings, how bad they are, and from where on they are told.
//
// A file of its own beside health.hpp, so that what is looked for can be read at a glance.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/residency/role.hpp>

namespace vtier {

/// How bad a finding is. remark: it costs little so far. warning: it costs time. failure: something did not work.
enum class severity : std::uint8_t { remark, warning, failure };

/// What is wrong.
///
/// swapping: bytes leave a tier and come back unwritten, step after step. slow_link: less than the link can do.
/// busy_link: transfers for much of a step. *_stall: the host was blocked, by cause. unused_prefetch: bytes that left
/// again unused. refused_prefetch: hints that were dropped. slow_step: far from the bound of the recorded step.
/// unsteady_step: it is not as recorded. old_lease: one that is never given back keeps its bytes where they are.
/// failed_write: bytes that files did not take. other_failure: what else could not be thrown. unlocked_memory: host
/// memory that is not page-locked. no_steps: nothing can be put in relation. note: what is done without on this
/// machine.
enum class symptom : std::uint8_t {
  swapping,
  slow_link,
  busy_link,
  fetch_stall,
  room_stall,
  reserve_stall,
  flush_stall,
  events_stall,
  unused_prefetch,
  refused_prefetch,
  slow_step,
  unsteady_step,
  old_lease,
  failed_write,
  other_failure,
  unlocked_memory,
  no_steps,
  note
};

/// The name of a severity, as the enumerator is written.
///
/// Threads any
[[nodiscard]] constexpr std::string_view name(severity how) noexcept {
  switch (how) {
    case severity::remark: return "remark";
    case severity::warning: return "warning";
    case severity::failure: return "failure";
  }
  return "unknown";
}

/// The name of a symptom, in words.
///
/// Threads any
[[nodiscard]] constexpr std::string_view name(symptom what) noexcept {
  switch (what) {
    case symptom::swapping: return "continuous swapping";
    case symptom::slow_link: return "slow link";
    case symptom::busy_link: return "busy link";
    case symptom::fetch_stall: return "stalls for bytes from files";
    case symptom::room_stall: return "stalls for room";
    case symptom::reserve_stall: return "stalls for reservations";
    case symptom::flush_stall: return "stalls in flushes";
    case symptom::events_stall: return "stalls for kernels and copies";
    case symptom::unused_prefetch: return "unused prefetches";
    case symptom::refused_prefetch: return "dropped prefetches";
    case symptom::slow_step: return "slow step";
    case symptom::unsteady_step: return "unsteady step";
    case symptom::old_lease: return "lease held for long";
    case symptom::failed_write: return "failed write";
    case symptom::other_failure: return "failure";
    case symptom::unlocked_memory: return "unlocked memory";
    case symptom::no_steps: return "no steps";
    case symptom::note: return "note";
  }
  return "unknown";
}

/// One thing that is wrong.
///
/// Gives   fields that concern it; a link is `from` and `tier`
struct finding {
  vtier::severity severity = vtier::severity::remark;
  symptom what = symptom::note;
  std::string text;                 // what was seen, in numbers, and what to change; without the name of the symptom
  std::vector<role> roles;          // of the tensors concerned, the most bytes first
  std::optional<std::size_t> tier;  // by its number; of a link the tier that it leads to
  std::optional<std::size_t> from;  // of a link
};

/// From where on something is worth a finding.
///
/// Units   shares of 1 and factors: a finding is what is at or beyond them
struct health_limits {
  double swapped_steps = 0.5;       // of all steps, those in which bytes came back
  double swapped_tier = 0.1;        // of a tier's budget, what comes back in a step on average
  double link_rate = 0.6;           // of what a link can do, below which it is slow ...
  std::size_t link_bytes = 64_MiB;  // ... once it has moved as much as this
  double link_time = 0.3;           // of the steps' time, that transfers of a link take
  double link_full = 0.9;           // the same where the link is full and sets the time of a step
  double stall_time = 0.05;         // of the steps' time, that the host is blocked for one cause
  double prefetch_unused = 0.2;     // of the bytes that were prefetched
  double prefetch_refused = 0.1;    // of the prefetches that were of use or dropped
  double step_deviations = 0.1;     // of a recorded step's repetitions
  double step_bound = 1.5;          // time of a step to the least it could take
  double lease_steps = 10.0;        // age of a lease to the time of a step
};

}  // namespace vtier
