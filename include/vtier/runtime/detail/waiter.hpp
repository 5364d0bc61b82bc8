// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a caller does that has to wait: it drives the state machine itself and sleeps between looks, without the lock.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/policy/placement.hpp>
#include <vtier/residency/access.hpp>
#include <vtier/residency/role.hpp>
#include <vtier/runtime/detail/driver.hpp>

namespace vtier::detail {

/// State with the calls that block.
///
/// Threads every member under `lock`, which a member that takes it gives up while it sleeps
template <device Device, eviction_policy Eviction>
class waiter : public driver<Device, Eviction> {
 public:
  using typename driver<Device, Eviction>::block_type;
  using typename driver<Device, Eviction>::event;
  using driver<Device, Eviction>::driver;

  /// Blocks until the newest bytes of a block are in the slowest tier that its rule allows.
  void flush(std::unique_lock<std::mutex>& hold, block_type& b) {
    const want keep{*this, b};
    std::size_t lowest = b.tier_count() - 1;
    while (lowest > 0 && !this->rule_of(b).allows(lowest)) --lowest;
    stall blocked{this->record, b, lowest};
    std::int64_t contended_ns = 0;
    for (;;) {
      this->pump();
      if (b.version() == 0 || b.size_bytes() == 0) return;
      if (auto why = this->take_fetch_failure(b)) std::rethrow_exception(why);
      const auto from = b.newest();
      if (from) {
        const auto below = tiers_below(*from, b.size_bytes(), this->rule_of(b), this->capacities());
        const std::size_t to = below.empty() ? *from : below.back();
        if (b.current(to)) return settle(hold, b, to, b.in(to).written);
        if (b.in(*from).leases > 0) throw usage_error("a tensor was flushed while a lease on it is in force");
        const std::uint64_t failures = this->write_failure_count();
        if (b.in(to).absent()) {
          auto made = room_for(b, to, contended_ns);
          if (made.state == room_state::impossible) throw this->no_room(to, b.size_bytes());
          if (made.state == room_state::ready) this->place(b, to, std::move(*made.place));
        }
        if (b.in(to).idle()) {
          this->start_move(b, *from, to, urgency::demand);
          while (b.in(to).filling()) {
            waited(hold, this->counted.blocked_flush_ns, blocked, stall_cause::flush);
            this->pump();
          }
        }
        if (this->write_failure_count() != failures && !b.current(to)) std::rethrow_exception(this->write_failure());
        if (b.current(to)) continue;
      }
      waited(hold, this->counted.blocked_flush_ns, blocked, stall_cause::flush);
    }
  }

  /// Blocks until a reservation is had, or the time is over.
  ///
  /// Errors  out_of_memory, device_error; then nothing is reserved
  taken_range<event> reserve(std::unique_lock<std::mutex>& hold, std::size_t where, std::size_t asked_bytes,
                             std::int64_t timeout_ns) {
    const std::size_t size_bytes = this->reservable_bytes(where, asked_bytes);
    this->check_possible(where, size_bytes);
    typename waiter::request in_line{*this, where, size_bytes};
    stall blocked{this->record, where, size_bytes};
    const std::int64_t began = this->on.now_ns();
    for (;;) {
      this->pump();
      if (in_line.failure) std::rethrow_exception(in_line.failure);
      if (in_line.place) {
        forget_passed(in_line.place->uses, [this](const event& e) { return this->on.passed(e); });
        if (in_line.place->uses.empty()) return in_line.keep();
      }
      if (this->on.now_ns() - began >= timeout_ns) throw this->no_room(where, asked_bytes, "reservation");
      waited(hold, this->counted.blocked_reserve_ns, blocked, stall_cause::reserve);
    }
  }

  void check_compatible(const block_type& b, access mode) const {
    if (!b.compatible(mode)) {
      throw usage_error("tensor #" + std::to_string(b.id()) + " (" + std::string{name(b.what())} + ", " +
                        format_bytes(b.size_bytes()) +
                        ") is leased already: a lease that writes stands alone, end the other lease first");
    }
    if (reads(mode) && b.version() == 0 && b.size_bytes() > 0) {
      throw usage_error("tensor #" + std::to_string(b.id()) + " (" + std::string{name(b.what())} + ", " +
                        format_bytes(b.size_bytes()) + ") was never written: take a write lease first");
    }
  }

  // Brings a block into a tier, ready for a lease but for events. On return the lock is held without a gap since the
  // block was seen ready.
  void bring(std::unique_lock<std::mutex>& hold, block_type& b, access mode, std::size_t where) {
    const std::uint64_t write_failures = this->write_failure_count();
    patience limit{this->starving};
    stall blocked{this->record, b, where};
    std::int64_t contended_ns = 0;
    for (bool first = true;; first = false) {
      if (!first) this->pump();  // a resident lease pays for nothing of this; it can also be what brings the block
      auto& r = b.in(where);
      const bool content = b.current(where) || !reads(mode);
      check_compatible(b, mode);
      if (r.resident() && content && (!writes(mode) || r.transfers_out == 0)) {
        this->forget_failures(b);
        return;
      }
      if (auto why = this->take_fetch_failure(b)) std::rethrow_exception(why);
      if (r.filling()) {
        this->hasten_fill(b, where, urgency::demand);
        waited(hold, this->counted.blocked_fetch_ns, blocked, stall_cause::fetch);
      } else if (r.resident() && content) {  // it is being written down from here: let that end
        this->cancel_reads(b, where);
        waited(hold, this->counted.blocked_room_ns, blocked, stall_cause::room);
      } else if (r.absent()) {
        auto made = room_for(b, where, contended_ns);
        if (made.state == room_state::ready) {
          this->place(b, where, std::move(*made.place));
        } else if (this->write_failure_count() != write_failures) {
          std::rethrow_exception(this->write_failure());
        } else if (made.state == room_state::impossible) {
          throw this->no_room(where, b.size_bytes());
        } else {
          limit.waited(waited(hold, this->counted.blocked_room_ns, blocked, stall_cause::room));
        }
      } else if (const auto from = b.newest(); from && r.idle()) {
        this->start_move(b, *from, where, urgency::demand);
      } else {  // the newest bytes are on their way to another tier
        waited(hold, this->counted.blocked_fetch_ns, blocked, stall_cause::fetch);
      }
    }
  }

  // Makes room for a caller that waits. Where nothing but waiting callers keep it, their blocks go down too after a
  // while, and after a long one there is an answer.
  auto room_for(block_type& b, std::size_t where, std::int64_t& contended_ns) {
    this->pushes_wanted = contended_ns > contended_ns_max / 10;
    auto made = [&] {
      try {
        return this->make_room(b, where, urgency::demand);
      } catch (...) {
        this->pushes_wanted = false;
        throw;
      }
    }();
    this->pushes_wanted = false;
    if (made.state == room_state::contended && (contended_ns += pause_ns) > contended_ns_max) {
      made.state = room_state::impossible;
    }
    return made;
  }

  // Blocks without the lock until events of a block have passed; the lock is held again afterwards, whatever happens.
  void settle(std::unique_lock<std::mutex>& hold, const block_type& b, std::size_t where, std::vector<event> events) {
    stall blocked{this->record, b, where};
    const std::int64_t began = this->on.now_ns();
    hold.unlock();
    try {
      for (const event& e : events) this->on.synchronize(e);
    } catch (...) {
      hold.lock();
      throw;
    }
    hold.lock();
    if (events.empty()) return;
    const std::int64_t ended = this->on.now_ns();
    blocked.add(stall_cause::events, began, ended);
    this->counted.blocked_events_ns += ended - began;
    this->counted.blocked_ns += ended - began;
  }

  // Sleeps without the lock until something may have changed; counts the time.
  std::int64_t waited(std::unique_lock<std::mutex>& hold, std::int64_t& counter, stall& blocked, stall_cause why) {
    const std::int64_t took = pause(hold, blocked, why);
    counter += took;
    this->counted.blocked_ns += took;
    return took;
  }

  // The same without counting; says how long it was.
  std::int64_t pause(std::unique_lock<std::mutex>& hold, stall& blocked, stall_cause why) {
    const std::int64_t began = this->on.now_ns();
    hold.unlock();
    this->on.pause(pause_ns);
    hold.lock();
    const std::int64_t ended = this->on.now_ns();
    blocked.add(why, began, ended);
    return ended - began;
  }

  static constexpr std::int64_t pause_ns = 20'000;
  static constexpr std::int64_t contended_ns_max = 100'000'000;
};

}  // namespace vtier::detail
