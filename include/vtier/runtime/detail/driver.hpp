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
        queue{this->limits.prefetch_count_max} {}

  // One round of everything that can be done without waiting.
  bool pump() {
    bool changed = this->collect();
    changed = this->serve_reservations() || changed;
    if (starving > 0) return changed;  // room that is made goes to whoever has waited long, and to nothing else
    if (!queue.empty()) {
      changed = queue.serve([this](const movement& wish) { return serve(wish); }) || changed;
    }
    changed = this->evict_ahead() || changed;
    return this->write_ahead() || changed;
  }

  prefetch_queue queue;
  std::uint32_t starving = 0;  // callers that have waited long for room

 protected:
  movement_result fetch(block_type& b, std::size_t where, bool planned) {
    auto& r = b.in(where);
    if (b.version() == 0 || r.filling() || b.leases() > 0 || !this->rule_of(b).allows(where)) {
      return movement_result::finished;
    }
    const auto from = b.newest();
    if (!from) return movement_result::pending;  // on its way to some tier
    if (*from <= where) return movement_result::finished;
    if (r.absent()) {
      const std::size_t unused = planned ? 0 : unused_bytes(where);
      const auto unused_max = static_cast<std::size_t>(this->limits.prefetch_share_max *
                                                       static_cast<double>(this->tiers[where].budget_bytes()));
      if (!planned && unused > 0 && unused + b.size_bytes() > unused_max) return movement_result::pending;
      if (this->tiers[where].map.largest_free_bytes() < b.size_bytes() && this->writing_fails()) {
        ++this->counted.prefetch_dropped_count;
        return movement_result::finished;
      }
      const want keep{*this, b};
      auto made = this->make_room(b, where, urgency::prefetch);
      if (made.state == room_state::pending || made.state == room_state::contended) return movement_result::pending;
      if (made.state == room_state::impossible) {
        ++this->counted.prefetch_dropped_count;
        return movement_result::finished;
      }
      this->place(b, where, std::move(*made.place));
    } else if (!r.idle()) {
      return movement_result::pending;
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
  movement_result serve(const movement& wish) {
    block_type* const b = this->blocks.find(wish.block);
    if (b == nullptr || b->dying) return movement_result::finished;
    try {
      return wish.way == movement::direction::fetch ? fetch(*b, wish.tier, wish.planned) : evict(*b, wish.tier);
    } catch (...) {
      this->report_error("a prefetch or an eviction", std::current_exception());
      return movement_result::finished;
    }
  }

  [[nodiscard]] std::size_t unused_bytes(std::size_t where) const {
    std::size_t sum = 0;
    for (const auto& entry : this->blocks.in(where)) {
      const auto& r = entry.second->in(where);
      if (r.prefetched && (r.filling() || entry.second->current(where))) sum += r.size_bytes;
    }
    return sum;
  }
};

}  // namespace vtier::detail
