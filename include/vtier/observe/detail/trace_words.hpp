// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the events of a timeline are called in a trace. A file of its own, so that the words can be read at a glance and
// the trace is about the format alone.

#include <string>
#include <string_view>

#include <vtier/core/config.hpp>
#include <vtier/residency/access.hpp>
#include <vtier/runtime/timeline.hpp>
#include <vtier/transfer/transfer.hpp>

namespace vtier::detail {

/// The category of an event, which viewers filter by.
[[nodiscard]] constexpr std::string_view category(timeline_kind kind) noexcept {
  switch (kind) {
    case timeline_kind::lease: return "lease";
    case timeline_kind::transfer: return "transfer";
    case timeline_kind::stall: return "stall";
    case timeline_kind::step: return "step";
    case timeline_kind::occupancy: return "occupancy";
  }
  return "unknown";
}

/// What the host waits for.
[[nodiscard]] constexpr std::string_view reason(stall_cause why) noexcept {
  switch (why) {
    case stall_cause::fetch: return "bytes on their way from files";
    case stall_cause::room: return "a write to files makes room";
    case stall_cause::reserve: return "a reservation waits for room";
    case stall_cause::events: return "a lease of the host waits for kernels";
    case stall_cause::flush: return "a flush writes to files";
  }
  return "unknown";
}

/// What a lease is for, as the enumerator is written.
[[nodiscard]] inline std::string word(access mode) {
  if (mode == access::read) return "read";
  return mode == access::write ? "write" : "read_write";
}

/// How urgent a transfer was, as the enumerator is written.
[[nodiscard]] constexpr std::string_view word(urgency priority) noexcept {
  if (priority == urgency::demand) return "demand";
  return priority == urgency::prefetch ? "prefetch" : "write_back";
}

/// What an event is called: words of vtier alone, so that they need no escapes.
[[nodiscard]] inline std::string words(const timeline_event& e) {
  const std::string tensor = "#" + std::to_string(e.number);
  switch (e.kind) {
    case timeline_kind::lease: return tensor + " " + word(e.mode) + (e.on_host ? " on host" : "");
    case timeline_kind::transfer:
      if (e.ended == transfer_state::failed) return tensor + " failed";
      return e.ended == transfer_state::cancelled ? tensor + " cancelled" : tensor;
    case timeline_kind::stall: return std::string{name(e.cause)} + ": " + std::string{reason(e.cause)};
    case timeline_kind::step: return "step " + std::to_string(e.number);
    case timeline_kind::occupancy: break;
  }
  return "unknown";
}

}  // namespace vtier::detail
