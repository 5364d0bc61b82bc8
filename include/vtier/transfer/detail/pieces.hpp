// SPDX-License-Identifier: Apache-2.0
#pragma once

// Small parts of the copier that do not know its state: a chunk on its way, which goes first, which way a copy goes,
// what a failed file transfer is called, how an engine is emptied.

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/device/device.hpp>
#include <vtier/io/engine.hpp>
#include <vtier/memory/slab.hpp>
#include <vtier/transfer/route.hpp>
#include <vtier/transfer/transfer.hpp>

namespace vtier::detail {

/// The step that a chunk is in.
enum class phase : std::uint8_t { reading, copying_up, copying_down, writing };

/// No staging slot.
inline constexpr std::size_t no_slot = ~std::size_t{0};

/// A chunk on its way.
template <class Event>
struct piece {
  std::shared_ptr<transfer<Event>> owner;  // null once only the slot waits for a copy
  chunk part;
  std::size_t done_bytes = 0;  // of part.padded_bytes, in the present file hop
  std::size_t slot = no_slot;
  std::uint64_t tag = 0;
  phase now = phase::reading;
  bool submitted = false;           // the engine has it
  std::uint32_t interruptions = 0;  // one after the other
  Event copied;
};

/// Takes a free staging slot. The last one is for demand alone, so that a queue of prefetches never keeps a waiting
/// caller from moving.
[[nodiscard]] inline std::size_t take_slot(std::vector<bool>& taken, urgency priority) noexcept {
  const std::size_t usable = priority == urgency::demand || taken.size() == 1 ? taken.size() : taken.size() - 1;
  for (std::size_t slot = 0; slot < usable; ++slot) {
    if (!taken[slot]) {
      taken[slot] = true;
      return slot;
    }
  }
  return no_slot;
}

/// The side of a piece that its present file hop works on.
template <class Event>
[[nodiscard]] const endpoint& file_side(const piece<Event>& p) noexcept {
  return p.now == phase::reading ? p.owner->source : p.owner->target;
}

/// Whether a transfer goes before another: by urgency, prefetches by deadline, then in order of starting.
template <class Event>
[[nodiscard]] bool before(const std::shared_ptr<transfer<Event>>& a,
                          const std::shared_ptr<transfer<Event>>& b) noexcept {
  if (a->priority != b->priority) return a->priority < b->priority;
  if (a->priority == urgency::prefetch && a->deadline != b->deadline) return a->deadline < b->deadline;
  return a->sequence < b->sequence;
}

/// Whether a chunk goes before another, as their transfers do; what belongs to none any more goes last.
template <class Event>
[[nodiscard]] bool goes_before(const piece<Event>& a, const piece<Event>& b) noexcept {
  if (!a.owner || !b.owner) return a.owner && !b.owner;
  if (a.owner != b.owner) return before<Event>(a.owner, b.owner);
  return a.part.offset_bytes < b.part.offset_bytes;
}

/// Whether a file hop was only interrupted and is asked for again. One that is never anything else is an error.
template <class Event>
[[nodiscard]] bool interrupted(piece<Event>& p, std::int64_t result) noexcept {
  constexpr std::uint32_t interruptions_max = 10'000;
  if (result != -EINTR && result != -EAGAIN) {
    p.interruptions = 0;
    return false;
  }
  return ++p.interruptions <= interruptions_max;
}

/// Which way a copy between two memories goes.
[[nodiscard]] constexpr copy_direction direction(memory_kind source, memory_kind target) noexcept {
  const bool to_device = target == memory_kind::device;
  if (source == memory_kind::device)
    return to_device ? copy_direction::device_to_device : copy_direction::device_to_host;
  return to_device ? copy_direction::host_to_device : copy_direction::host_to_host;
}

/// The error of a file transfer that failed or made no progress.
///
/// Units   bytes; the offset from the start of the tensor; the result as a file_completion has it
inline std::exception_ptr transfer_error(bool reading, const endpoint& file, std::size_t offset_bytes,
                                         std::size_t wanted_bytes, std::int64_t result) {
  const slab_properties& tier = file.memory->properties();
  const file_place place = file.memory->locate(file.offset_bytes + offset_bytes);
  const int error = result < 0 ? static_cast<int>(-result) : EIO;
  return std::make_exception_ptr(io_error(error, tier.name + ": " + (reading ? "reading" : "writing") + " a file in " +
                                                     tier.place + " at offset " + std::to_string(place.offset_bytes) +
                                                     ", wanted " + std::to_string(wanted_bytes) + " bytes, got " +
                                                     std::to_string(result > 0 ? result : 0)));
}

/// Says how a transfer ended of which nothing is outstanding.
template <class Event>
void conclude(transfer<Event>& t) noexcept {
  if (t.error) {
    t.state = transfer_state::failed;
  } else if (t.cancelled && t.chunk_next < t.chunk_total) {
    t.state = transfer_state::cancelled;
  } else {
    t.state = transfer_state::done;
  }
}

/// Waits until an engine has nothing in flight, and forgets what it says.
inline void drain(io::engine* engine) noexcept {
  try {
    std::array<file_completion, 64> ignored;
    while (engine != nullptr && engine->in_flight() > 0) {
      engine->wait(1'000'000);
      engine->reap(ignored);
    }
  } catch (...) {  // an engine that is broken itself; its destructor waits once more
  }
}

/// Where a byte of one side of a transfer is.
[[nodiscard]] inline std::byte* address(const endpoint& side, std::size_t offset_bytes) {
  return side.memory->base() + side.offset_bytes + offset_bytes;
}

}  // namespace vtier::detail
