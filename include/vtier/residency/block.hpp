// SPDX-License-Identifier: Apache-2.0
#pragma once

// One tensor as the hierarchy sees it: an identity with replicas, at most one per tier, and a version that says which
// of them are the newest.
//
// This is the one state machine of residency. A member changes the state; `runtime/` calls it under its lock.

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <vtier/core/config.hpp>
#include <vtier/residency/access.hpp>
#include <vtier/residency/replica.hpp>
#include <vtier/residency/role.hpp>

namespace vtier {

/// The next use of what nobody knows a next use of: later than all others.
inline constexpr std::uint64_t unknown_use = (std::numeric_limits<std::uint64_t>::max)();

/// A tensor's bytes, wherever they are.
///
/// Units   bytes
/// Threads the hierarchy's lock
template <class Event>
class block {
 public:
  block(std::uint64_t id, role what, std::size_t size_bytes, std::size_t tier_count)
      : id_{id},
        size_bytes_{size_bytes},
        tier_count_{tier_count},
        replicas_{std::make_unique<replica<Event>[]>(tier_count)},
        role_{what} {}

  [[nodiscard]] std::uint64_t id() const noexcept { return id_; }
  [[nodiscard]] role what() const noexcept { return role_; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] std::uint64_t version() const noexcept { return version_; }
  [[nodiscard]] std::size_t tier_count() const noexcept { return tier_count_; }

  [[nodiscard]] replica<Event>& in(std::size_t tier) noexcept {
    VTIER_ASSERT(tier < tier_count_, "a tier that the hierarchy does not have");
    return replicas_[tier];
  }
  [[nodiscard]] const replica<Event>& in(std::size_t tier) const noexcept {
    VTIER_ASSERT(tier < tier_count_, "a tier that the hierarchy does not have");
    return replicas_[tier];
  }

  /// Whether the tier holds the newest content, ready but for events.
  [[nodiscard]] bool current(std::size_t tier) const noexcept {
    const auto& r = in(tier);
    return r.resident() && version_ != 0 && r.version == version_;
  }

  /// The fastest tier that holds the newest content, `except` one.
  [[nodiscard]] std::optional<std::size_t> newest(
      std::size_t except = (std::numeric_limits<std::size_t>::max)()) const noexcept {
    for (std::size_t tier = 0; tier < tier_count_; ++tier) {
      if (tier != except && current(tier)) return tier;
    }
    return std::nullopt;
  }

  /// Whether this replica is the only one with the newest content: losing it would lose the tensor.
  [[nodiscard]] bool sole(std::size_t tier) const noexcept { return current(tier) && !newest(tier); }

  /// Whether a lease of that kind may begin beside those in force.
  [[nodiscard]] bool compatible(access mode) const noexcept {
    return writes(mode) ? readers_ == 0 && !writer_ : !writer_;
  }

  /// A lease begins on a replica that is ready for it.
  ///
  /// Needs   compatible(mode); the content current if the mode reads; no transfer that reads the replica if the mode
  ///         writes (asserted)
  void begin_lease(std::size_t tier, access mode, std::uint64_t now) noexcept {
    auto& r = in(tier);
    VTIER_ASSERT(compatible(mode), "a second writer on one tensor");
    VTIER_ASSERT(size_bytes_ == 0 || r.resident(), "a lease on a replica without a place");
    VTIER_ASSERT(size_bytes_ == 0 || !reads(mode) || current(tier), "a lease that reads stale bytes");
    VTIER_ASSERT(!writes(mode) || r.transfers_out == 0, "a lease that writes what a transfer reads");
    if (writes(mode)) {
      writer_ = true;
      ++version_;
      r.version = version_;  // every other replica is stale from here on
    } else {
      ++readers_;
    }
    ++r.leases;
    r.last_use = now;
    r.prefetched = false;
    r.leaving = false;
    next_use = unknown_use;
  }

  /// A lease ends; `after` is the event that marks its last use, empty for a lease of the host.
  void end_lease(std::size_t tier, access mode, std::optional<Event> after) {
    auto& r = in(tier);
    VTIER_ASSERT(r.leases > 0 && (writes(mode) ? writer_ : readers_ > 0), "a lease ended twice");
    if (after) {
      if (writes(mode)) {
        // The lease waited for all earlier uses, so its own end says everything.
        r.written.assign(1, std::move(*after));
        r.readers.clear();
      } else {
        r.readers.push_back(std::move(*after));
      }
    } else if (writes(mode)) {
      r.written.clear();
      r.readers.clear();
    }
    --r.leases;
    if (writes(mode)) {
      writer_ = false;
    } else {
      --readers_;
    }
  }

  /// How many leases are in force.
  [[nodiscard]] std::size_t leases() const noexcept { return readers_ + (writer_ ? 1U : 0U); }

  /// Since when leases on it have been in force without a gap, in the device's time; meaningless without one.
  std::int64_t leased_since_ns = 0;

  /// Where in the first tier it is to be placed, if that can be had: an offset in bytes.
  std::size_t wanted_offset_bytes = no_offset;
  static constexpr std::size_t no_offset = ~std::size_t{0};

  /// Somebody waits for this block: no replica of it is to be evicted meanwhile.
  std::uint32_t wanted = 0;

  /// When it will be used next, where that is known: a point of the program, a smaller one is sooner. A lease that
  /// begins is that use, and what comes after it is unknown again.
  std::uint64_t next_use = unknown_use;

  /// Its tensor is gone; it stays only until transfers and leases that refer to it have ended.
  bool dying = false;

 private:
  std::uint64_t id_;
  std::size_t size_bytes_;
  std::size_t tier_count_;
  std::unique_ptr<replica<Event>[]> replicas_;
  std::uint64_t version_ = 0;
  std::size_t readers_ = 0;
  role role_;
  bool writer_ = false;
};

}  // namespace vtier
