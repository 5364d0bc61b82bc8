// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which of two uses of the same bytes comes first, if any: vector clocks and a history of accesses.
//
// Two uses that no chain of submissions, events and waits joins can happen in either order, one of them a wrong one,
// also where the bytes came out right this time. The bookkeeping is pure: it knows addresses and actors, no memory.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>

namespace vtier::sim {

/// Something whose own steps are in order: the host, a stream, a file request. Numbered from 0.
using actor = std::uint32_t;

/// What an actor knows to be over: for each actor, how many of its steps.
///
/// Threads one at a time
/// Cost    O(actors) for join, O(1) otherwise
/// Source  Mattern: Virtual time and global states of distributed systems, 1988
class vector_clock {
 public:
  /// The steps of `who` that are known to be over.
  [[nodiscard]] std::uint32_t of(actor who) const noexcept { return who < counts_.size() ? counts_[who] : 0; }

  /// Notes another step of `who`; gives its number, counted from 1.
  std::uint32_t advance(actor who) {
    if (who >= counts_.size()) counts_.resize(who + 1U);
    return ++counts_[who];
  }

  /// Learns all that the other one knows.
  void join(const vector_clock& other) {
    if (other.counts_.size() > counts_.size()) counts_.resize(other.counts_.size());
    for (std::size_t i = 0; i < other.counts_.size(); ++i) counts_[i] = (std::max)(counts_[i], other.counts_[i]);
  }

 private:
  std::vector<std::uint32_t> counts_;
};

/// One step of one actor, and the number under which its operation is described.
struct step_stamp {
  actor who = 0;
  std::uint32_t count = 0;
  std::size_t operation = 0;
};

/// What is done with bytes.
enum class access_kind : std::uint8_t { read, write };

/// Who has used which bytes last.
///
/// Units   addresses and sizes in bytes
/// Threads one at a time
/// Cost    O(log ranges + ranges touched)
class access_history {
 public:
  /// Notes a use of [first, first + size). `report(stamp, kind)` is called for each earlier use that this one conflicts
  /// with and does not follow: a write beside anything, a read beside a write.
  template <class Report>
  void touch(std::uintptr_t first, std::size_t size_bytes, access_kind how, const step_stamp& by,
             const vector_clock& known, Report&& report) {
    if (size_bytes == 0) return;
    const std::uintptr_t end = first + size_bytes;
    split(first);
    split(end);
    const auto follows = [&](const step_stamp& earlier) { return known.of(earlier.who) >= earlier.count; };
    auto at = ranges_.lower_bound(first);
    std::uintptr_t reached = first;
    for (; at != ranges_.end() && at->first < end; ++at) {
      range& r = at->second;
      if (r.write.count > 0 && !follows(r.write)) report(r.write, access_kind::write);
      if (how == access_kind::write) {
        for (const step_stamp& s : r.reads) {
          if (!follows(s)) report(s, access_kind::read);
        }
        continue;
      }
      if (at->first > reached) ranges_.emplace_hint(at, reached, range{at->first, {}, {by}});
      reached = r.end;
      std::erase_if(r.reads, [&](const step_stamp& s) { return s.who == by.who || follows(s); });
      r.reads.push_back(by);
    }
    if (how == access_kind::write) {
      ranges_.erase(ranges_.lower_bound(first), at);
      ranges_.emplace(first, range{end, by, {}});
    } else if (reached < end) {
      ranges_.emplace_hint(at, reached, range{end, {}, {by}});
    }
  }

  /// Forgets the uses of [first, first + size).
  void forget(std::uintptr_t first, std::size_t size_bytes) {
    if (size_bytes == 0) return;
    split(first);
    split(first + size_bytes);
    ranges_.erase(ranges_.lower_bound(first), ranges_.lower_bound(first + size_bytes));
  }

 private:
  struct range {
    std::uintptr_t end = 0;
    step_stamp write;                 // the last one; count 0: none
    std::vector<step_stamp> reads{};  // since then, without those that a later reader follows
  };

  // Makes `at` the border of two ranges, where it lies inside one.
  void split(std::uintptr_t at) {
    const auto next = ranges_.upper_bound(at);
    if (next == ranges_.begin()) return;
    const auto inside = std::prev(next);
    if (inside->first == at || inside->second.end <= at) return;
    range rest = inside->second;
    inside->second.end = at;
    ranges_.emplace_hint(next, at, std::move(rest));
  }

  std::map<std::uintptr_t, range> ranges_;
};

}  // namespace vtier::sim
