// SPDX-License-Identifier: Apache-2.0
#pragma once

// What should move before anybody waits for it: a bounded list of wishes.
//
// A wish is a hint. It names a block by number, so that a tensor that dies leaves nothing dangling; when the list is
// full the oldest wish is dropped rather than the caller held up.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>

#include <vtier/core/config.hpp>

namespace vtier {

/// A wish to bring a block into a tier, or to move it out of one.
struct movement {
  enum class direction : std::uint8_t { fetch, evict };
  std::uint64_t block = 0;
  std::size_t tier = 0;  // fetch: where to; evict: from where
  direction way = direction::fetch;
  bool planned = false;  // by a schedule, which has made room for it
  friend bool operator==(const movement&, const movement&) = default;
};

/// What became of a wish that was looked at.
enum class movement_result : std::uint8_t { finished, pending };

/// Wishes in order of asking.
///
/// Threads the hierarchy's lock
class prefetch_queue {
 public:
  /// Needs   count_max > 0
  explicit prefetch_queue(std::size_t count_max) : count_max_{count_max} {}

  /// Adds a wish unless it is there; a contrary wish for the same block is replaced.
  ///
  /// Gives   false where the oldest wish had to be dropped for it
  bool push(const movement& wish) {
    if (std::find(list_.begin(), list_.end(), wish) != list_.end()) return true;
    std::erase_if(list_, [&](const movement& m) { return m.block == wish.block; });
    const bool fits = list_.size() < count_max_;
    if (!fits) list_.pop_front();
    list_.push_back(wish);
    return fits;
  }

  /// Forgets all wishes for a block.
  void forget(std::uint64_t block) noexcept {
    std::erase_if(list_, [&](const movement& m) { return m.block == block; });
  }

  /// Forgets all wishes of a schedule.
  void forget_planned() noexcept {
    std::erase_if(list_, [](const movement& m) { return m.planned; });
  }

  /// Shows each wish to `serve`, oldest first, and removes those it says are finished. Behind a fetch that is pending
  /// no later fetch is shown, so that room goes to the one asked for first.
  ///
  /// Gives   whether any was finished
  template <class Serve>
  bool serve(Serve&& serve) {
    bool fetch_pending = false;
    bool changed = false;
    for (std::size_t i = 0; i < list_.size();) {
      const bool fetches = list_[i].way == movement::direction::fetch;
      if ((fetches && fetch_pending) || serve(list_[i]) == movement_result::pending) {
        fetch_pending = fetch_pending || fetches;
        ++i;
      } else {
        list_.erase(list_.begin() + static_cast<std::ptrdiff_t>(i));
        changed = true;
      }
    }
    return changed;
  }

  [[nodiscard]] bool empty() const noexcept { return list_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return list_.size(); }

 private:
  std::size_t count_max_;
  std::deque<movement> list_;
};

}  // namespace vtier
