// SPDX-License-Identifier: Apache-2.0
#pragma once

// Who leaves when a tier has no room: what a policy sees, and what it answers.
//
// A policy is a pure function of the tier's map. It answers with a window of neighbours, because a tensor needs one
// piece of address space: freeing as many bytes in many places would help nobody.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <vtier/core/config.hpp>
#include <vtier/residency/block.hpp>

namespace vtier {

/// What it would take to reuse a stretch of a tier, from nothing to impossible.
enum class occupancy : std::uint8_t {
  free,       // nobody's
  stale,      // an old version: dropped without loss
  duplicate,  // the newest bytes are in a faster tier too: dropped, and written here again at worst
  clean,      // the newest bytes are in a slower tier too: dropped, and fetched over a slower link at worst
  dirty,      // the only newest bytes: moved down first
  leaving,    // being written down at this moment
  held,       // a lease, a transfer or somebody waiting needs it
};

/// A stretch of a tier.
///
/// Units   bytes; last_use in ticks of the hierarchy, larger is later; next_use in points of the program, larger is
/// later
struct stretch {
  std::size_t offset_bytes = 0;
  std::size_t size_bytes = 0;
  std::uint64_t last_use = 0;
  std::uint64_t block = 0;  // whose it is, 0 for free
  occupancy state = occupancy::free;
  std::uint64_t next_use = unknown_use;
};

/// The stretches [first, last) that are to be freed.
struct victim_window {
  std::size_t first = 0;
  std::size_t last = 0;
  friend bool operator==(const victim_window&, const victim_window&) = default;
};

/// Something that chooses victims.
///
/// Needs   the stretches of one tier in order of address, without gaps
/// Gives   a window of at least size_bytes without a held stretch, or nothing where there is none; the same answer for
///         the same question
/// Threads any
template <class P>
concept eviction_policy = requires(const P& policy, std::span<const stretch> tier, std::size_t size_bytes) {
  { policy.choose(tier, size_bytes) } -> std::same_as<std::optional<victim_window>>;
};

}  // namespace vtier
