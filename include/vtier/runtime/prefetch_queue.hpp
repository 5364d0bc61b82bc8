// SPDX-License-Identifier: Apache-2.0
#pragma once

// What should move before anybody waits for it: a bounded list of wishes, the most urgent first.
//
// A wish is a hint. It names a block by number, so that a tensor that dies leaves nothing dangling; when the list is
// full the wish that can wait longest is dropped rather than the caller held up. Here stands the order and the bound;
// what it takes to serve a wish is the driver's business.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

#include <vtier/core/config.hpp>

namespace vtier {

/// The deadline of a wish that has none: after all others.
inline constexpr std::uint64_t no_deadline = ~std::uint64_t{0};

/// A wish to bring a block into a tier, or to move it out of one.
///
/// Units   bytes; deadlines are points of the program, a smaller one is sooner
struct movement {
  enum class direction : std::uint8_t { fetch, evict };
  std::uint64_t block = 0;
  std::size_t tier = 0;  // fetch: where to; evict: from where
  direction way = direction::fetch;
  std::size_t size_bytes = 0;
  std::uint64_t deadline = no_deadline;  // of a fetch: by when the bytes should be there
  bool planned = false;                  // by a schedule, which has made room for it
  friend bool operator==(const movement&, const movement&) = default;
};

/// What became of a wish that was looked at: it is over; it waits for something of its own; it waits for room in its
/// tier, which no fetch that can wait longer may take before it.
enum class movement_result : std::uint8_t { finished, pending, waits_for_room };

/// Wishes: fetches in order of deadline and then of asking, evictions in order of asking.
///
/// Threads the hierarchy's lock
/// Cost    O(wishes)
class prefetch_queue {
 public:
  /// What became of a wish that was added.
  struct answer {
    bool taken = false;             // whether it is in the list
    std::size_t dropped_count = 0;  // wishes that went for it, itself included
  };

  /// Units   bytes that the fetches in the list want together
  /// Needs   count_max > 0
  prefetch_queue(std::size_t count_max, std::size_t bytes_max) : count_max_{count_max}, bytes_max_{bytes_max} {}

  /// Adds a wish; the last one for a block counts. One that is there already keeps its place, unless it comes with
  /// another deadline. Of too many fetches the last in order go, one of any size stays; of too many evictions the
  /// oldest, which is the one that is under way.
  answer push(const movement& wish) {
    movement added = wish;
    const auto same = [&](const movement& m) { return m.block == wish.block && m.tier == wish.tier; };
    if (wish.way == movement::direction::evict) {
      if (std::any_of(evictions_.begin(), evictions_.end(), same)) return {true, 0};
      forget(wish.block);
      evictions_.push_back(added);
      if (evictions_.size() <= count_max_) return {true, 0};
      evictions_.pop_front();
      return {true, 1};
    }
    const auto known = std::find_if(fetches_.begin(), fetches_.end(), same);
    if (known != fetches_.end()) {
      if (wish.deadline == no_deadline || wish.deadline == known->deadline) return {true, 0};
    }
    forget(wish.block);
    const auto place = std::upper_bound(fetches_.begin(), fetches_.end(), added,
                                        [](const movement& a, const movement& b) { return a.deadline < b.deadline; });
    fetches_.insert(place, added);
    fetch_bytes_ += added.size_bytes;
    answer result{true, 0};
    while (fetches_.size() > count_max_ || (fetch_bytes_ > bytes_max_ && fetches_.size() > 1)) {
      if (fetches_.back().block == added.block) result.taken = false;
      fetch_bytes_ -= fetches_.back().size_bytes;
      fetches_.pop_back();
      ++result.dropped_count;
    }
    return result;
  }

  /// Takes the wish to fetch a block back.
  void cancel_fetch(std::uint64_t block) noexcept {
    std::erase_if(fetches_, [&](const movement& m) {
      if (m.block != block) return false;
      fetch_bytes_ -= m.size_bytes;
      return true;
    });
  }

  /// Forgets all wishes for a block.
  void forget(std::uint64_t block) noexcept {
    cancel_fetch(block);
    std::erase_if(evictions_, [&](const movement& m) { return m.block == block; });
  }

  /// Forgets all wishes of a schedule.
  void forget_planned() noexcept {
    std::erase_if(evictions_, [](const movement& m) { return m.planned; });
    std::erase_if(fetches_, [this](const movement& m) {
      if (m.planned) fetch_bytes_ -= m.size_bytes;
      return m.planned;
    });
  }

  /// Shows each wish to `serve` and removes those that it says are finished: evictions first, since they make room,
  /// then fetches in their order. Behind a fetch that waits for room no later one is shown for the same tier.
  ///
  /// Needs   fewer than 33 tiers; `serve` does not touch the list
  /// Gives   whether any was finished
  template <class Serve>
  bool serve(Serve&& serve) {
    bool changed = false;
    for (std::size_t i = 0; i < evictions_.size();) {
      if (serve(static_cast<const movement&>(evictions_[i])) != movement_result::finished) {
        ++i;
        continue;
      }
      evictions_.erase(evictions_.begin() + static_cast<std::ptrdiff_t>(i));
      changed = true;
    }
    std::uint32_t full = 0;  // tiers in which a sooner fetch waits for room, as bits
    for (std::size_t i = 0; i < fetches_.size();) {
      const movement& m = fetches_[i];
      const std::uint32_t tier = std::uint32_t{1} << m.tier;
      const movement_result result = (full & tier) != 0 ? movement_result::pending : serve(m);
      if (result == movement_result::waits_for_room) full |= tier;
      if (result != movement_result::finished) {
        ++i;
        continue;
      }
      fetch_bytes_ -= m.size_bytes;
      fetches_.erase(fetches_.begin() + static_cast<std::ptrdiff_t>(i));
      changed = true;
    }
    return changed;
  }

  [[nodiscard]] bool empty() const noexcept { return fetches_.empty() && evictions_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return fetches_.size() + evictions_.size(); }

  /// What the fetches in the list want together, in bytes.
  [[nodiscard]] std::size_t fetch_bytes() const noexcept { return fetch_bytes_; }

 private:
  std::size_t count_max_;
  std::size_t bytes_max_;
  std::size_t fetch_bytes_ = 0;
  std::deque<movement> fetches_;  // by deadline, then by age
  std::deque<movement> evictions_;
};

}  // namespace vtier
