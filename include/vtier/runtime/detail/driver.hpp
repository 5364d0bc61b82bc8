// SPDX-License-Identifier: Apache-2.0
#pragma once

// One round of everything that can be done without waiting: transfers that ended, wishes that wait, writes ahead of
// need.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/runtime/detail/drainer.hpp>
#include <vtier/runtime/options.hpp>
#include <vtier/runtime/prefetch_queue.hpp>

namespace vtier::detail {

/// Keeps a block where it is while somebody waits for it. When the last one has gone, an error that was kept for them
/// and that nobody took goes to the report.
///
/// Threads made and destroyed under the lock
template <class State>
class want {
 public:
  want(State& state, typename State::block_type& b) noexcept : state_{&state}, wanted_{&b} {
    ++wanted_->wanted;
    ++state_->changes;
  }
  want(const want&) = delete;
  want& operator=(const want&) = delete;
  ~want() {
    ++state_->changes;
    if (--wanted_->wanted == 0) state_->untold(*wanted_);
  }

 private:
  State* state_;
  typename State::block_type* wanted_;
};

/// A caller that waits for room; once it has waited long, work ahead of need stops until it has got an answer. Without
/// that, the one could push out for ever what the other writes down.
///
/// Threads made, asked and destroyed under the lock
class patience {
 public:
  explicit patience(std::uint32_t& starving) noexcept : starving_{&starving} {}
  patience(const patience&) = delete;
  patience& operator=(const patience&) = delete;
  ~patience() {
    if (over_) --*starving_;
  }

  /// Notes that the caller has waited so long by now.
  void waited(std::int64_t ns) noexcept {
    waited_ns_ += ns;
    if (!over_ && waited_ns_ > waited_ns_max) {
      over_ = true;
      ++*starving_;
    }
  }

 private:
  static constexpr std::int64_t waited_ns_max = 100'000'000;
  std::uint32_t* starving_;
  std::int64_t waited_ns_ = 0;
  bool over_ = false;
};

/// State that drives itself as far as it goes without waiting.
///
/// Threads every member under `lock`
template <device Device, eviction_policy Eviction>
class driver : public drainer<Device, Eviction> {
 public:
  using typename drainer<Device, Eviction>::block_type;

  driver(Device device, std::vector<slab> slabs, options wanted)
      : drainer<Device, Eviction>{std::move(device), std::move(slabs), std::move(wanted)},
        queue{this->limits.prefetch_count_max, this->limits.prefetch_bytes_max > 0
                                                   ? this->limits.prefetch_bytes_max
                                                   : this->tiers.front().budget_bytes() / 2} {}

  // One round of everything that can be done without waiting.
  bool pump() {
    bool changed = this->collect();
    changed = this->serve_reservations() || changed;
    if (starving > 0) return changed;  // room that is made goes to whoever has waited long, and to nothing else
    if (!queue.empty()) {
      files_busy_ = false;
      changed = queue.serve([this](const movement& wish) { return serve(wish); }) || changed;
      for (const movement& wish : displaced_) this->counted.prefetch_dropped_count += queue.push(wish).dropped_count;
      displaced_.clear();
    }
    changed = this->evict_ahead() || changed;
    return this->write_ahead() || changed;
  }

  /// Takes note of a wish, and of what it says about the next use of the block.
  ///
  /// Gives   whether it was taken
  /// Errors  usage_error for a tier that is not there
  bool wish(block_type& b, std::size_t tier, movement::direction way, std::uint64_t deadline) {
    if (tier >= this->tiers.size()) {
      throw usage_error("tier " + std::to_string(tier) + " was named, the hierarchy has " +
                        std::to_string(this->tiers.size()));
    }
    if (b.size_bytes() == 0) return true;
    if (way == movement::direction::evict) {
      expect_use(b, unknown_use);
    } else if (deadline != no_deadline) {
      expect_use(b, deadline);
    }
    const auto answer = queue.push({b.id(), tier, way, b.size_bytes(), deadline});
    this->counted.prefetch_dropped_count += answer.dropped_count;
    return answer.taken;
  }

  /// Takes back that a block was wished for; a fetch from files that was started for it stops.
  /// One that somebody waits for is none ahead of need any more, and goes on.
  void cancel_prefetch(block_type& b) {
    queue.cancel_fetch(b.id());
    expect_use(b, unknown_use);
    for (std::size_t i = 0; i < b.tier_count(); ++i) b.in(i).prefetched = false;
    this->cancel_prefetches(b);
  }

  prefetch_queue queue;
  std::uint32_t starving = 0;  // callers that have waited long for room

 protected:
  // Notes which deadline is being served.
  class serving_until {
   public:
    serving_until(std::uint64_t& now, std::uint64_t deadline) noexcept : now_{&now} { now = deadline; }
    serving_until(const serving_until&) = delete;
    serving_until& operator=(const serving_until&) = delete;
    ~serving_until() { *now_ = 0; }

   private:
    std::uint64_t* now_;
  };

  // What had to stay for a block's next use may go from here on, or stay longer.
  void expect_use(block_type& b, std::uint64_t when) noexcept {
    b.next_use = when;
    ++this->changes;
  }

  movement_result serve(const movement& wish) {
    block_type* const b = this->blocks.find(wish.block);
    if (b == nullptr || b->dying) return movement_result::finished;
    try {
      if (wish.way == movement::direction::evict) return evict(*b, wish.tier);
      const serving_until guard{this->serving, wish.deadline};
      return fetch(*b, wish);
    } catch (...) {
      this->report_error("a prefetch or an eviction", std::current_exception());
      return movement_result::finished;
    }
  }

  movement_result fetch(block_type& b, const movement& wish) {
    const std::size_t where = wish.tier;
    auto& r = b.in(where);
    if (b.version() == 0 || r.filling() || b.leases() > 0 || !this->rule_of(b).allows(where)) {
      return movement_result::finished;
    }
    const auto from = b.newest();
    if (!from) return movement_result::pending;  // on its way to some tier
    if (*from <= where) return movement_result::finished;
    if (!r.absent() && !r.idle()) return movement_result::pending;
    if (this->tiers[*from].memory.kind() == memory_kind::file && !files_take(b)) return movement_result::pending;
    if (r.absent()) {
      if (!wish.planned && !within_share(wish)) return movement_result::waits_for_room;
      if (this->tiers[where].map.largest_free_bytes() < b.size_bytes() && this->writing_fails()) {
        ++this->counted.prefetch_dropped_count;
        return movement_result::finished;
      }
      const want keep{*this, b};
      auto made = this->make_room(b, where, urgency::prefetch);
      if (made.state == room_state::pending || made.state == room_state::contended) {
        return movement_result::waits_for_room;
      }
      if (made.state == room_state::impossible) {
        ++this->counted.prefetch_dropped_count;
        return movement_result::finished;
      }
      this->place(b, where, std::move(*made.place));
    }
    r.last_use = ++this->tick;
    r.prefetched = true;
    this->start_move(b, *from, where, urgency::prefetch);
    this->counted.prefetched_bytes += b.size_bytes();
    return movement_result::finished;
  }

  movement_result evict(block_type& b, std::size_t where) {
    if (b.in(where).leases > 0 || b.wanted > 0 || !b.in(where).resident()) return movement_result::finished;
    if (b.sole(where) && this->writing_fails()) return movement_result::finished;  // a hint is not worth another error
    const room_state left = this->push_out(b, where, urgency::write_back);
    return left == room_state::pending || left == room_state::contended ? movement_result::pending
                                                                        : movement_result::finished;
  }

 private:
  // Whether a prefetch from files may start. Behind one that may not, none may in this round: a small one would
  // overtake a large one that is needed sooner, again and again.
  [[nodiscard]] bool files_take(const block_type& b) {
    if (files_busy_) return false;
    std::size_t under_way = 0;
    for (const auto& entry : this->flights) {
      const auto& f = entry.second;
      if (f.to < f.from && f.handle->priority == urgency::prefetch) under_way += f.owner->size_bytes();
    }
    files_busy_ = under_way > 0 && under_way + b.size_bytes() > this->limits.prefetch_flight_bytes_max;
    return !files_busy_;
  }

  // Whether so much of a tier may hold prefetched bytes that nobody has used yet. Those that are used later than what
  // this is about make way, and are wished for again: what is needed first would wait for them in vain.
  bool within_share(const movement& wish) {
    const auto unused_max = static_cast<std::size_t>(this->limits.prefetch_share_max *
                                                     static_cast<double>(this->tiers[wish.tier].budget_bytes()));
    for (;;) {
      const std::size_t unused = unused_bytes(wish.tier);
      if (unused == 0 || unused + wish.size_bytes <= unused_max) return true;
      block_type* const last = last_unused(wish);
      if (last == nullptr) return false;
      displaced_.push_back({last->id(), wish.tier, movement::direction::fetch, last->size_bytes(), last->next_use});
      if (this->push_out(*last, wish.tier, urgency::prefetch) != room_state::ready) return false;
    }
  }

  // The block that was prefetched into a tier, can be dropped there, and is used last of those that are used later.
  [[nodiscard]] block_type* last_unused(const movement& wish) const {
    block_type* last = nullptr;
    for (const auto& [offset, b] : this->blocks.in(wish.tier)) {
      const auto& r = b->in(wish.tier);
      if (!r.prefetched || !r.idle() || !b->current(wish.tier) || b->sole(wish.tier)) continue;
      if (b->wanted > 0 || b->dying || b->next_use <= wish.deadline) continue;
      if (last == nullptr || b->next_use > last->next_use) last = b;
    }
    return last;
  }

  [[nodiscard]] std::size_t unused_bytes(std::size_t where) const {
    std::size_t sum = 0;
    for (const auto& entry : this->blocks.in(where)) {
      const auto& r = entry.second->in(where);
      if (r.prefetched && (r.filling() || entry.second->current(where))) sum += r.size_bytes;
    }
    return sum;
  }

  std::vector<movement> displaced_;  // in this round, by what is needed sooner
  bool files_busy_ = false;          // in this round a prefetch from files could not start
};

}  // namespace vtier::detail
