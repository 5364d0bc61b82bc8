// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which parts of an address range are taken: bookkeeping only, it never touches the memory.
//
// Each free piece remembers the events that must pass before its bytes are touched again. Neighbours with pending
// events stay separate pieces, so that a small request waits for no more than it has to; pieces whose events have
// passed merge. The same calls give the same offsets.

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>

namespace vtier {

/// Forgets the events that have passed.
///
/// Needs   `passed(event)`; where it throws, what was not asked yet stays
/// Cost    one question for each event
template <class Event, class Passed>
void forget_passed(std::vector<Event>& events, Passed&& passed) {
  for (auto at = events.begin(); at != events.end();) at = passed(*at) ? events.erase(at) : at + 1;
}

/// From which end of a free run a range is taken: ranges that stay for good stand together at the highest addresses.
enum class range_end { lowest, highest };

/// A taken range and what must pass before its bytes are used.
///
/// Units   bytes from the start of the address range
template <class Event>
struct taken_range {
  std::size_t offset_bytes = 0;
  std::size_t size_bytes = 0;
  std::vector<Event> uses;
};

/// A free range.
struct free_range {
  std::size_t offset_bytes = 0;
  std::size_t size_bytes = 0;
};

/// The map of one address range [0, capacity).
///
/// Units   bytes; every range starts and ends at a multiple of the granule
/// Threads one at a time
/// Cost    take: O(free pieces); give_back: O(log(free pieces)), no allocation
template <class Event>
class ranges {
 public:
  /// Needs   granule a power of two; the capacity is rounded down to it
  ranges(std::size_t capacity_bytes, std::size_t granule_bytes) : granule_bytes_{granule_bytes} {
    VTIER_ASSERT(is_power_of_two(granule_bytes), "a granule must be a power of two");
    grow(capacity_bytes);
  }

  /// Takes the beginning of the smallest free run that fits, or the end of the last one; empty where none does.
  /// `passed(event)` says what needs no more waiting.
  ///
  /// Needs   size_bytes > 0
  /// Errors  std::bad_alloc, std::length_error: nothing has changed then
  template <class Passed>
  [[nodiscard]] std::optional<taken_range<Event>> take(std::size_t size_bytes, Passed&& passed,
                                                       range_end from = range_end::lowest) {
    VTIER_ASSERT(size_bytes > 0, "a range of no bytes needs no place");
    const auto rounded = checked_align_up(size_bytes, granule_bytes_);
    if (!rounded || *rounded > capacity_bytes_) return std::nullopt;
    prune(passed);
    auto best = free_.end();
    std::size_t best_bytes = 0;
    for (auto first = free_.begin(); first != free_.end();) {
      auto last = first;
      const std::size_t run_bytes = run(last);
      if (run_bytes >= *rounded && (best == free_.end() || from == range_end::highest || run_bytes < best_bytes)) {
        best = first;
        best_bytes = run_bytes;
      }
      first = last;
    }
    if (best == free_.end()) return std::nullopt;
    return cut(best, from == range_end::lowest ? best->first : best->first + best_bytes - *rounded, *rounded);
  }

  /// Takes the range that begins there; empty where not all of it is free.
  ///
  /// Needs   multiples of the granule, size_bytes > 0
  /// Errors  as take
  template <class Passed>
  [[nodiscard]] std::optional<taken_range<Event>> take_at(std::size_t offset_bytes, std::size_t size_bytes,
                                                          Passed&& passed) {
    VTIER_ASSERT(size_bytes > 0 && ((offset_bytes | size_bytes) & (granule_bytes_ - 1)) == 0,
                 "a range was named that does not begin and end at granules");
    prune(passed);
    auto first = free_.upper_bound(offset_bytes);
    if (first == free_.begin()) return std::nullopt;
    --first;
    auto last = first;
    if (first->first + run(last) < offset_bytes + size_bytes) return std::nullopt;
    return cut(first, offset_bytes, size_bytes);
  }

  /// The free runs whose events have passed, in order of address.
  template <class Passed>
  [[nodiscard]] std::vector<free_range> settled_runs(Passed&& passed) {
    prune(passed);
    std::vector<free_range> result;
    for (const auto& [offset, one] : free_) {
      if (one.uses.empty()) result.push_back({offset, one.size_bytes});
    }
    return result;
  }

  /// Gives a taken range back; its bytes are touched again only after `uses` have passed.
  ///
  /// Needs   exactly what take() gave (what lies outside or overlaps with a free piece is asserted against)
  void give_back(std::size_t offset_bytes, std::size_t size_bytes, std::vector<Event> uses) noexcept {
    VTIER_ASSERT(size_bytes > 0 && size_bytes <= used_bytes_, "more was given back than was taken");
    VTIER_ASSERT(
        ((offset_bytes | size_bytes) & (granule_bytes_ - 1)) == 0 && offset_bytes <= capacity_bytes_ - size_bytes,
        "a range was given back that was never taken");
    const auto next = free_.lower_bound(offset_bytes);
    VTIER_ASSERT(next == free_.end() || next->first >= offset_bytes + size_bytes, "a range was given back twice");
    VTIER_ASSERT(next == free_.begin() || std::prev(next)->first + std::prev(next)->second.size_bytes <= offset_bytes,
                 "a range was given back twice");
    VTIER_ASSERT(!spare_.empty(), "a range was given back in more pieces than it was taken in");
    auto node = std::move(spare_.back());
    spare_.pop_back();
    node.key() = offset_bytes;
    node.mapped() = piece{size_bytes, std::move(uses)};
    free_.insert(next, std::move(node));
    used_bytes_ -= size_bytes;
  }

  /// Moves a taken range down to where the free run right below it begins; what was free is then above it.
  ///
  /// Needs   a range that take() gave; its bytes are the caller's to move
  /// Gives   the new offset; empty where nothing is free below, or where that waits for an event
  template <class Passed>
  std::optional<std::size_t> slide_down(std::size_t offset_bytes, std::size_t size_bytes, Passed&& passed) {
    prune(passed);
    auto below = free_.lower_bound(offset_bytes);
    if (below == free_.begin()) return std::nullopt;
    --below;
    const bool touches = below->first + below->second.size_bytes == offset_bytes;
    if (!touches || !below->second.uses.empty()) return std::nullopt;
    const std::size_t target = below->first;
    auto moved = free_.extract(below);
    moved.key() = target + size_bytes;
    free_.insert(std::move(moved));
    return target;
  }

  /// Makes the address range longer.
  ///
  /// Needs   a capacity not below the present one
  void grow(std::size_t capacity_bytes) {
    const std::size_t rounded = align_down(capacity_bytes, granule_bytes_);
    VTIER_ASSERT(rounded >= capacity_bytes_, "an address range only grows");
    if (rounded == capacity_bytes_) return;
    free_.emplace(capacity_bytes_, piece{rounded - capacity_bytes_, {}});
    capacity_bytes_ = rounded;
  }

  /// The free runs in order of address, neighbours as one.
  [[nodiscard]] std::vector<free_range> free_runs() const {
    std::vector<free_range> result;
    for (auto first = free_.begin(); first != free_.end();) {
      auto last = first;
      const std::size_t run_bytes = run(last);
      result.push_back({first->first, run_bytes});
      first = last;
    }
    return result;
  }

  /// Shows every event that a free piece still waits for.
  template <class Function>
  void for_each_use(Function&& function) const {
    for (const auto& entry : free_) {
      for (const Event& use : entry.second.uses) function(use);
    }
  }

  /// Whether a free piece still waits for an event.
  template <class Passed>
  [[nodiscard]] bool waits(Passed&& passed) {
    prune(passed);
    return std::any_of(free_.begin(), free_.end(), [](const auto& entry) { return !entry.second.uses.empty(); });
  }

  /// The longest free run.
  [[nodiscard]] std::size_t largest_free_bytes() const {
    std::size_t largest = 0;
    for (const free_range& r : free_runs()) largest = (std::max)(largest, r.size_bytes);
    return largest;
  }

  [[nodiscard]] std::size_t capacity_bytes() const noexcept { return capacity_bytes_; }
  [[nodiscard]] std::size_t used_bytes() const noexcept { return used_bytes_; }
  [[nodiscard]] std::size_t free_bytes() const noexcept { return capacity_bytes_ - used_bytes_; }
  [[nodiscard]] std::size_t peak_bytes() const noexcept { return peak_bytes_; }
  [[nodiscard]] std::size_t granule_bytes() const noexcept { return granule_bytes_; }

 private:
  struct piece {
    std::size_t size_bytes = 0;
    std::vector<Event> uses{};
  };
  using pieces = std::map<std::size_t, piece>;
  using piece_node = typename pieces::node_type;

  static piece_node new_node() {
    pieces one;
    one.emplace(0, piece{});
    return one.extract(one.begin());
  }

  // Takes [begin, begin + size_bytes), all of it free, from the run that holds `best`. First all that can fail, then
  // all that changes the map.
  std::optional<taken_range<Event>> cut(typename pieces::iterator best, std::size_t begin, std::size_t size_bytes) {
    taken_range<Event> result{begin, size_bytes, {}};
    const std::size_t end = begin + size_bytes;
    while (best->first + best->second.size_bytes <= begin) ++best;
    for (auto at = best; at != free_.end() && at->first < end; ++at) {
      result.uses.insert(result.uses.end(), at->second.uses.begin(), at->second.uses.end());
    }
    spare_.push_back(new_node());
    if (best->first < begin) {  // the front of the piece stays
      auto back = new_node();
      back.key() = begin;
      back.mapped() = {best->first + best->second.size_bytes - begin, best->second.uses};
      best->second.size_bytes = begin - best->first;
      best = free_.insert(std::move(back)).position;
    }
    while (best != free_.end() && best->first < end) {
      const std::size_t piece_end = best->first + best->second.size_bytes;
      if (piece_end <= end) {
        best = free_.erase(best);
      } else {
        auto rest = free_.extract(best);
        rest.key() = end;
        rest.mapped().size_bytes = piece_end - end;
        free_.insert(std::move(rest));
        break;
      }
    }
    used_bytes_ += size_bytes;
    peak_bytes_ = (std::max)(peak_bytes_, used_bytes_);
    return result;
  }

  // Moves `at` behind the run of touching pieces that it begins and says how long that is.
  template <class Iterator>
  std::size_t run(Iterator& at) const {
    std::size_t end = at->first;
    std::size_t run_bytes = 0;
    while (at != free_.end() && at->first == end) {
      run_bytes += at->second.size_bytes;
      end += at->second.size_bytes;
      ++at;
    }
    return run_bytes;
  }

  // Forgets passed events and merges neighbours that have none left.
  template <class Passed>
  void prune(Passed& passed) {
    for (auto at = free_.begin(); at != free_.end();) {
      forget_passed(at->second.uses, passed);
      if (at != free_.begin()) {
        const auto before = std::prev(at);
        if (at->second.uses.empty() && before->second.uses.empty() &&
            before->first + before->second.size_bytes == at->first) {
          before->second.size_bytes += at->second.size_bytes;
          at = free_.erase(at);
          continue;
        }
      }
      ++at;
    }
  }

  std::size_t granule_bytes_;
  std::size_t capacity_bytes_ = 0;
  std::size_t used_bytes_ = 0;
  std::size_t peak_bytes_ = 0;
  pieces free_;
  std::vector<piece_node> spare_;  // one for each taken range, so that giving back needs no memory
};

}  // namespace vtier
