// SPDX-License-Identifier: Apache-2.0
#pragma once

// One copy between two tiers, as a value: what is asked, how far it has come, how it ended.

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/memory/slab.hpp>
#include <vtier/transfer/route.hpp>

namespace vtier {

/// How urgent a transfer is; smaller goes first.
enum class urgency : std::uint8_t { demand, prefetch, write_back };

/// How far a transfer is.
enum class transfer_state : std::uint8_t { queued, running, done, failed, cancelled };

/// One side of a transfer: a place in a slab.
struct endpoint {
  slab* memory = nullptr;
  std::size_t tier = 0;
  std::size_t offset_bytes = 0;
};

/// A copy between two tiers.
///
/// Units   bytes
/// Needs   both places stay until the transfer has ended; the owner sees to that
/// Gives   state; after done, failed or cancelled: `finished`, what must pass before either place is touched again
template <class Event>
struct transfer {
  endpoint source;
  endpoint target;
  std::size_t size_bytes = 0;
  urgency priority = urgency::demand;
  std::vector<Event> source_after;  // must pass before the source is read
  std::vector<Event> target_after;  // must pass before the target is overwritten
  std::uint64_t owner = 0;          // for whoever started it
  std::optional<Event> began;  // of a copy that is timed: passes when its bytes begin to move; `finished` is timed too
  std::uint64_t deadline = 0;  // among prefetches a smaller one goes first

  transfer_state state = transfer_state::queued;
  std::vector<Event> finished;
  std::exception_ptr error;

  // The copier's own cursor.
  route way;
  std::uint64_t sequence = 0;
  std::size_t chunk_total = 0;
  std::size_t chunk_next = 0;
  std::size_t outstanding = 0;
  bool stopped = false;    // no further chunk is issued
  bool cancelled = false;  // stopped by its owner

  [[nodiscard]] bool ended() const noexcept {
    return state == transfer_state::done || state == transfer_state::failed || state == transfer_state::cancelled;
  }
};

}  // namespace vtier
