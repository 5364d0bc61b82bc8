// SPDX-License-Identifier: Apache-2.0
#pragma once

// One tensor's bytes in one tier: where they are, which version, and what must pass before they are touched.
//
// The states and the rules between them stand here and in block.hpp; whoever breaks one meets an assertion, in release
// too. Nothing here moves a byte.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>

namespace vtier {

/// Whether a replica has a place, and whether its content may be used.
///
/// absent -> filling (a file transfer brings the bytes) -> resident; absent -> resident (a copy in stream order brings
/// them, or they are about to be written); resident -> absent (dropped); filling -> resident with version 0
/// (abandoned).
enum class replica_state : std::uint8_t { absent, filling, resident };

/// The bytes of a block in one tier.
///
/// Units   bytes; versions count from 1, version 0 is no content; last_use in the hierarchy's own ticks
/// Threads the hierarchy's lock
template <class Event>
struct replica {
  replica_state state = replica_state::absent;
  std::uint32_t leases = 0;         // leases in force on this replica
  std::uint32_t transfers_out = 0;  // file transfers that read it and have not ended
  std::size_t offset_bytes = 0;     // place in the tier
  std::size_t size_bytes = 0;       // size of the place, a multiple of the tier's granule
  std::uint64_t version = 0;        // which content it holds
  std::uint64_t filling_version = 0;
  std::uint64_t last_use = 0;
  std::uint64_t left_version = 0;  // which content was let go when it last was dropped, and in which step
  std::uint64_t left_step = 0;
  bool prefetched = false;     // brought by a prefetch and not yet used
  bool leaving = false;        // to be dropped as soon as its bytes are further down
  std::vector<Event> written;  // must pass before the bytes are read
  std::vector<Event> readers;  // must pass, besides `written`, before they are overwritten or reused

  [[nodiscard]] bool absent() const noexcept { return state == replica_state::absent; }
  [[nodiscard]] bool filling() const noexcept { return state == replica_state::filling; }
  [[nodiscard]] bool resident() const noexcept { return state == replica_state::resident; }

  /// Whether nothing but events holds it where it is.
  [[nodiscard]] bool idle() const noexcept { return resident() && leases == 0 && transfers_out == 0; }

  /// Gives it a place. Its content is none until it is filled or written.
  void place(std::size_t offset, std::size_t size, std::vector<Event> uses) noexcept {
    VTIER_ASSERT(absent(), "a replica that has a place was given another");
    state = replica_state::resident;
    offset_bytes = offset;
    size_bytes = size;
    version = 0;
    written = std::move(uses);
    readers.clear();
    prefetched = false;
    leaving = false;
  }

  /// A file transfer begins to fill it with that version.
  void begin_fill(std::uint64_t incoming_version) noexcept {
    VTIER_ASSERT(idle(), "a replica in use was to be filled");
    state = replica_state::filling;
    version = 0;
    filling_version = incoming_version;
  }

  /// The fill has ended well; the bytes may be read after `after` has passed.
  void finish_fill(std::vector<Event> after) noexcept {
    VTIER_ASSERT(filling(), "a fill ended that never began");
    state = replica_state::resident;
    version = filling_version;
    written = std::move(after);
    readers.clear();
  }

  /// The fill has failed or was cancelled; the place stays, without content.
  void abandon_fill(std::vector<Event> after) noexcept {
    finish_fill(std::move(after));
    version = 0;
  }

  /// A copy in stream order fills it; the bytes may be read after `after` has passed.
  void fill_in_order(std::uint64_t incoming_version, std::vector<Event> after) noexcept {
    VTIER_ASSERT(idle(), "a replica in use was to be filled");
    version = incoming_version;
    written = std::move(after);
    readers.clear();
  }

  /// What must pass before the bytes are overwritten or the place is reused.
  [[nodiscard]] std::vector<Event> uses() const {
    std::vector<Event> all = written;
    all.insert(all.end(), readers.begin(), readers.end());
    return all;
  }

  /// Leaves the place; whoever takes it next waits for what is returned.
  [[nodiscard]] std::vector<Event> drop() {
    VTIER_ASSERT(idle(), "a replica was dropped while a lease or a transfer refers to it");
    std::vector<Event> all = uses();
    *this = replica{};
    return all;
  }

  /// Remembers, after a drop, what it held.
  void leave(std::uint64_t held_version, std::uint64_t step) noexcept {
    left_version = held_version;
    left_step = step;
  }
};

}  // namespace vtier
