// SPDX-License-Identifier: Apache-2.0
#pragma once

// Watermarks: room that is made in a tier before anybody asks for it, one small step at a time.
//
// Bytes only go down, and a copy that writing ahead has made in files stays there: so nothing is moved twice, and two
// tiers cannot play at catch with a tensor.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/policy/eviction.hpp>
#include <vtier/runtime/detail/reserver.hpp>
#include <vtier/runtime/options.hpp>

namespace vtier::detail {

/// State that keeps its watermarks.
///
/// Threads every member under `lock`
template <device Device, eviction_policy Eviction>
class drainer : public reserver<Device, Eviction> {
 public:
  using typename reserver<Device, Eviction>::block_type;

  drainer(Device device, std::vector<slab> slabs, options wanted)
      : reserver<Device, Eviction>{std::move(device), std::move(slabs), std::move(wanted)},
        drains_(this->limits.watermarks.size()) {}

  /// Sends idle tensors away from tiers that are above their high watermark, until the low one is reached.
  ///
  /// Gives   whether anything was dropped or sent off; errors reach the report
  bool evict_ahead() noexcept {
    bool changed = false;
    for (std::size_t where = 0; where < drains_.size(); ++where) {
      if (!wants_drain(where)) continue;
      try {
        changed = drain(where) || changed;
      } catch (...) {
        this->report_error("an eviction ahead of need", std::current_exception());
        drains_[where].seen = this->changes;
      }
    }
    return changed;
  }

  /// Whether evict_ahead() has something to look at.
  [[nodiscard]] bool wants_drain() const noexcept {
    for (std::size_t where = 0; where < drains_.size(); ++where) {
      if (wants_drain(where)) return true;
    }
    return false;
  }

 private:
  struct progress_of_drain {
    bool under_way = false;                  // above the high watermark once, and not below the low one since
    std::uint64_t seen = ~std::uint64_t{0};  // `changes` when nothing was left to send off
  };

  // Notes that room is being made everywhere, so that what has no room below stays instead of going up.
  class only_down {
   public:
    explicit only_down(std::uint32_t& tiers) noexcept : tiers_{&tiers}, before_{std::exchange(tiers, ~0U)} {}
    only_down(const only_down&) = delete;
    only_down& operator=(const only_down&) = delete;
    ~only_down() { *tiers_ = before_; }

   private:
    std::uint32_t* tiers_;
    std::uint32_t before_;
  };

  [[nodiscard]] bool wants_drain(std::size_t where) const noexcept {
    const auto& d = drains_[where];
    return d.seen != this->changes && (d.under_way || used_bytes(where) > mark_bytes(where, &watermarks::high));
  }

  // What tensors use of a tier.
  [[nodiscard]] std::size_t used_bytes(std::size_t where) const noexcept {
    const auto& t = this->tiers[where];
    return t.map.used_bytes() - t.staging_bytes - t.reserved_bytes;
  }

  [[nodiscard]] std::size_t mark_bytes(std::size_t where, double watermarks::*mark) const noexcept {
    const auto& t = this->tiers[where];
    const std::size_t all = t.budget_bytes() - t.staging_bytes - t.reserved_bytes;
    return static_cast<std::size_t>(this->limits.watermarks[where].*mark * static_cast<double>(all));
  }

  bool drain(std::size_t where) {
    auto& d = drains_[where];
    const std::size_t low = mark_bytes(where, &watermarks::low);
    d.under_way = true;
    std::size_t leaving_bytes = 0;
    for (const auto& [offset, b] : this->blocks.in(where)) {
      if (b->in(where).leaving) leaving_bytes += b->in(where).size_bytes;
    }
    const only_down guard{this->clearing_};
    std::vector<std::uint64_t> stuck;
    bool changed = false;
    for (std::size_t step = 0; step < steps_max; ++step) {  // the lock is not held for longer
      if (used_bytes(where) <= low) d.under_way = false;
      if (used_bytes(where) <= low + leaving_bytes) {
        d.seen = this->changes;
        return changed;
      }
      block_type* const victim = next_victim(where, stuck, leaving_bytes > 0);
      if (victim == nullptr) {
        d.seen = this->changes;
        return changed;
      }
      const std::size_t size_bytes = victim->in(where).size_bytes;
      const room_state left = this->push_out(*victim, where, urgency::write_back);
      if (left == room_state::ready) {
        this->counted.evicted_ahead_bytes += size_bytes;
        changed = true;
      } else if (left == room_state::pending && victim->in(where).leaving) {  // one write at a time
        this->counted.evicted_ahead_bytes += size_bytes;
        leaving_bytes += size_bytes;
        changed = true;
      } else {
        stuck.push_back(victim->id());
      }
    }
    return changed;
  }

  // The tensor that the policy would evict first, of those that nobody uses, waits for or has just prefetched.
  [[nodiscard]] block_type* next_victim(std::size_t where, const std::vector<std::uint64_t>& stuck, bool writing) {
    const bool in_files = this->tiers[where].memory.kind() == memory_kind::file;
    const bool no_writes = writing || this->writing_fails();
    auto map = this->stretches(where, stuck);
    for (stretch& s : map) {
      const block_type* const b = this->blocks.find(s.block);
      const bool stays = b == nullptr || s.state == occupancy::leaving ||
                         (b->in(where).prefetched && b->current(where)) || (s.state == occupancy::dirty && no_writes) ||
                         (s.state == occupancy::duplicate && in_files);
      if (stays) s.state = occupancy::held;
    }
    const auto window = this->policy_.choose(map, 1);
    return window ? this->blocks.find(map[window->first].block) : nullptr;
  }

  static constexpr std::size_t steps_max = 16;
  std::vector<progress_of_drain> drains_;
};

}  // namespace vtier::detail
