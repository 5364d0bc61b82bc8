// SPDX-License-Identifier: Apache-2.0
#pragma once

// Writes the timeline: a ring whose memory is there before the first event, so that recording never fails.
//
// Every call is one comparison where nothing is to be recorded; the clock is read behind it.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/residency/access.hpp>
#include <vtier/residency/block.hpp>
#include <vtier/residency/role.hpp>
#include <vtier/runtime/timeline.hpp>
#include <vtier/transfer/transfer.hpp>

namespace vtier::detail {

static_assert(sizeof(timeline_event) <= 64, "options.timeline_events_max says what an event costs");

/// The events of a timeline, the newest so many.
///
/// Threads the hierarchy's lock
class recorder {
 public:
  /// Makes room for events and begins to record; 0 records nothing.
  ///
  /// Errors  std::bad_alloc
  void start(std::size_t events_max) {
    ring_.reserve(events_max);
    events_max_ = events_max;
  }

  [[nodiscard]] bool on() const noexcept { return events_max_ != 0; }

  /// The device's time where it is to be recorded.
  template <class Device>
  [[nodiscard]] std::int64_t now_ns(const Device& clock) const noexcept {
    return on() ? clock.now_ns() : 0;
  }

  /// A lease ends that began then.
  template <class Event, class Device>
  void lease(const block<Event>& b, std::size_t tier, access mode, bool on_host, std::int64_t began_ns,
             const Device& clock) noexcept {
    if (!on()) return;
    timeline_event e = of(b, timeline_kind::lease, tier, began_ns, clock.now_ns());
    e.mode = mode;
    e.on_host = on_host;
    add(e);
  }

  /// A transfer ends that was started then.
  template <class Event, class Device>
  void transfer(const block<Event>& b, std::size_t from, std::size_t to, std::int64_t began_ns, urgency priority,
                transfer_state ended, const Device& clock) noexcept {
    if (!on()) return;
    timeline_event e = of(b, timeline_kind::transfer, to, began_ns, clock.now_ns());
    e.from = from;
    e.priority = priority;
    e.ended = ended;
    add(e);
  }

  /// A copy was enqueued in a stream.
  template <class Event, class Device>
  void enqueued(const block<Event>& b, std::size_t from, std::size_t to, urgency priority,
                const Device& clock) noexcept {
    if (!on()) return;
    const std::int64_t now = clock.now_ns();
    timeline_event e = of(b, timeline_kind::transfer, to, now, now);
    e.from = from;
    e.priority = priority;
    e.enqueued = true;
    add(e);
  }

  /// A step ends that began then.
  template <class Device>
  void step(std::uint64_t number, std::int64_t began_ns, const Device& clock) noexcept {
    if (!on()) return;
    timeline_event e;
    e.kind = timeline_kind::step;
    e.number = number;
    e.begin_ns = began_ns;
    e.end_ns = clock.now_ns();
    add(e);
  }

  /// So many bytes of a tier are taken; recorded where that is news.
  template <class Device>
  void occupancy(std::size_t tier, std::size_t used_bytes, const Device& clock) noexcept {
    if (!on() || last_used_[tier] == used_bytes + 1) return;
    last_used_[tier] = used_bytes + 1;
    timeline_event e;
    e.kind = timeline_kind::occupancy;
    e.begin_ns = e.end_ns = clock.now_ns();
    e.size_bytes = used_bytes;
    e.tier = tier;
    add(e);
  }

  /// Keeps an event; the oldest goes where there is no room for it.
  ///
  /// Needs   on()
  void add(const timeline_event& e) noexcept {
    if (ring_.size() < events_max_) {
      ring_.push_back(e);  // within what start() has reserved
      return;
    }
    ring_[oldest_] = e;
    oldest_ = oldest_ + 1 == events_max_ ? 0 : oldest_ + 1;
    ++lost_count_;
  }

  /// The events in the order in which they were kept.
  ///
  /// Errors  std::bad_alloc
  [[nodiscard]] std::vector<timeline_event> events() const {
    std::vector<timeline_event> result;
    result.reserve(ring_.size());
    const auto middle = ring_.begin() + static_cast<std::ptrdiff_t>(oldest_);
    result.insert(result.end(), middle, ring_.end());
    result.insert(result.end(), ring_.begin(), middle);
    return result;
  }

  [[nodiscard]] std::uint64_t lost_count() const noexcept { return lost_count_; }

 private:
  template <class Event>
  [[nodiscard]] static timeline_event of(const block<Event>& b, timeline_kind kind, std::size_t tier,
                                         std::int64_t began_ns, std::int64_t ended_ns) noexcept {
    timeline_event e;
    e.kind = kind;
    e.what = b.what();
    e.number = b.id();
    e.size_bytes = b.size_bytes();
    e.tier = tier;
    e.begin_ns = began_ns;
    e.end_ns = (std::max)(began_ns, ended_ns);
    return e;
  }

  std::vector<timeline_event> ring_;
  std::size_t events_max_ = 0;
  std::size_t oldest_ = 0;
  std::uint64_t lost_count_ = 0;
  std::array<std::size_t, 32> last_used_{};  // by tier, and one more, so that 0 is none
};

/// The stall of one caller: waits for one cause, one behind the other, are one event, which is kept when another cause
/// takes over or the caller is done.
///
/// Threads made, told and destroyed under the lock
class stall {
 public:
  /// Of a caller that wants a tensor in a tier.
  template <class Event>
  stall(recorder& to, const block<Event>& b, std::size_t tier) noexcept
      : stall{to, b.what(), b.id(), tier, b.size_bytes()} {}
  /// Of a caller that wants a reservation.
  stall(recorder& to, std::size_t tier, std::size_t size_bytes) noexcept
      : stall{to, role::workspace, 0, tier, size_bytes} {}
  stall(const stall&) = delete;
  stall& operator=(const stall&) = delete;
  ~stall() { keep(); }

  /// The caller was blocked from then until then.
  void add(stall_cause why, std::int64_t began_ns, std::int64_t ended_ns) noexcept {
    if (!to_->on()) return;
    if (under_way_ && cause_ != why) keep();
    if (!under_way_) began_ns_ = began_ns;
    under_way_ = true;
    cause_ = why;
    ended_ns_ = ended_ns;
  }

 private:
  stall(recorder& to, role what, std::uint64_t number, std::size_t tier, std::size_t size_bytes) noexcept
      : to_{&to}, number_{number}, tier_{tier}, size_bytes_{size_bytes}, what_{what} {}

  void keep() noexcept {
    if (!under_way_) return;
    under_way_ = false;
    timeline_event e;
    e.kind = timeline_kind::stall;
    e.what = what_;
    e.cause = cause_;
    e.begin_ns = began_ns_;
    e.end_ns = ended_ns_;
    e.number = number_;
    e.size_bytes = size_bytes_;
    e.tier = tier_;
    to_->add(e);
  }

  recorder* to_;
  std::uint64_t number_;
  std::size_t tier_;
  std::size_t size_bytes_;
  std::int64_t began_ns_ = 0;
  std::int64_t ended_ns_ = 0;
  role what_;
  stall_cause cause_ = stall_cause::fetch;
  bool under_way_ = false;
};

}  // namespace vtier::detail
