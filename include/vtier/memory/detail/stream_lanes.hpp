// SPDX-License-Identifier: Apache-2.0
#pragma once

// Blocks of a pool that were given back in the order of a stream's work, and whose last uses may still be running.
//
// They stay live in the block map and wait in the lane of their stream: work enqueued there later may have them at
// once, and neighbours of one lane are one piece. Once their event has passed they are anybody's. The events of a lane
// pass in the order in which they were recorded, also where a handle has come to mean another stream meanwhile: each is
// recorded behind a wait for the one before it.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/device/device.hpp>
#include <vtier/memory/detail/block_map.hpp>
#include <vtier/memory/detail/pool_blocks.hpp>

namespace vtier::detail {

/// The blocks of one pool that wait for streams.
///
/// Units   granules of the block map
/// Threads one at a time
/// Cost    O(log(pieces)) and an event for each block that comes in
template <device Device>
class stream_lanes {
 public:
  using event = typename Device::event;
  using stream_ref = typename Device::stream_ref;

  stream_lanes(Device on, pool_blocks& blocks) : on_{std::move(on)}, map_{&blocks} {}
  stream_lanes(const stream_lanes&) = delete;
  stream_lanes& operator=(const stream_lanes&) = delete;

  [[nodiscard]] const Device& on() const noexcept { return on_; }
  [[nodiscard]] std::uint64_t waiting() const noexcept { return waiting_; }
  [[nodiscard]] std::size_t piece_count() const noexcept { return pieces_.size(); }
  [[nodiscard]] bool holds(std::uint64_t start) const { return !pieces_.empty() && pieces_.count(start) != 0; }

  /// Keeps a live block until the work of `stream` up to here has run.
  ///
  /// Errors  device_error, std::bad_alloc; then the block is not kept
  void put(const stream_ref& stream, std::uint64_t start, std::uint64_t size) {
    const std::size_t at = lane_of(stream);
    add(start, size, at, mark(at));
    join_neighbours(start);
  }

  /// Takes a block that `stream` itself has given back: the smallest piece that holds it.
  ///
  /// Errors  device_error, std::bad_alloc; then nothing has changed
  [[nodiscard]] std::uint64_t take(const stream_ref& stream, std::uint64_t size, std::uint64_t alignment) {
    const std::size_t at = known_lane(stream);
    if (at == lanes_.size()) return block_map::nowhere;
    lane& own = lanes_[at];
    const auto found = own.by_size.lower_bound({size + alignment - 1, 0});
    if (found == own.by_size.end()) return block_map::nowhere;
    const std::uint64_t first = found->second;
    const piece whole = pieces_.at(first);
    const std::uint64_t start = (first + alignment - 1) & ~(alignment - 1);
    const std::uint64_t end = first + whole.size;
    if (whole.number >= own.passed_count) {
      // Nothing to wait for on the same stream; a handle may mean another one by now.
      on_.wait(stream, own.events[whole.number - own.passed_count]);
    }
    const bool has_front = start > first;
    const bool has_rest = start + size < end;
    if (has_rest) {
      map_->split(first, start + size - first);
      try {
        add(start + size, end - start - size, at, whole.number);
      } catch (...) {
        map_->join(first);
        throw;
      }
      shorten(first, start + size - first);
    }
    if (has_front) {
      try {
        map_->split(first, start - first);
      } catch (...) {
        join_neighbours(first);
        throw;
      }
      shorten(first, start - first);
    } else {
      remove(first);
    }
    return start;
  }

  /// Gives the blocks whose events have passed to the block map.
  ///
  /// Errors  device_error: those that were found to have passed are given back
  void settle() {
    for (std::size_t at = 0; at < lanes_.size(); ++at) {
      lane& one = lanes_[at];
      while (!one.events.empty() && on_.passed(one.events.front())) {
        one.events.pop_front();
        ++one.passed_count;
        while (!one.by_number.empty() && one.by_number.begin()->first < one.passed_count) {
          give(one.by_number.begin()->second);
        }
      }
    }
  }

  /// Makes everything that is free, or waits for any stream, wait for `stream` alone, which waits for all of it: a last
  /// resort, so that the host need not block.
  ///
  /// Errors  device_error, std::bad_alloc: nothing is lost
  void absorb(const stream_ref& stream) {
    const std::size_t own = lane_of(stream);
    for (std::size_t at = 0; at < lanes_.size(); ++at) {
      if (at != own && !lanes_[at].events.empty()) on_.wait(stream, lanes_[at].events.back());
    }
    struct part {
      std::uint64_t start;
      std::uint64_t size;
      bool live;
      block_map::handle block;
    };
    std::vector<part> all;
    map_->settle();
    map_->for_each([&](std::uint64_t start, std::uint64_t size, bool live, block_map::handle block) {
      if (!live || pieces_.count(start) != 0) all.push_back({start, size, live, block});
    });
    const std::uint64_t number = mark(own);
    for (const part& p : all) {
      if (!p.live) {
        map_->claim(p.start, p.block);
        try {
          add(p.start, p.size, own, number);
        } catch (...) {
          std::uint64_t size = 0;
          map_->give(p.start, size);
          throw;
        }
        continue;
      }
      piece& there = pieces_.find(p.start)->second;
      if (there.lane == own && there.number == number) continue;
      auto in_size = lanes_[there.lane].by_size.extract({p.size, p.start});
      auto in_number = lanes_[there.lane].by_number.extract({there.number, p.start});
      in_number.value().first = number;
      lanes_[own].by_size.insert(std::move(in_size));
      lanes_[own].by_number.insert(std::move(in_number));
      there.lane = own;
      there.number = number;
    }
    for (const part& p : all) {
      if (pieces_.count(p.start) != 0) join_neighbours(p.start);
    }
  }

  /// What the host would wait for to have all of it.
  [[nodiscard]] std::vector<event> last_events() const {
    std::vector<event> result;
    for (const lane& one : lanes_) {
      if (!one.events.empty()) result.push_back(one.events.back());
    }
    return result;
  }

 private:
  struct piece {
    std::uint64_t size = 0;
    std::size_t lane = 0;
    std::uint64_t number = 0;  // of the event that it waits for
  };
  using ordered = std::set<std::pair<std::uint64_t, std::uint64_t>>;
  struct lane {
    stream_ref stream;
    std::deque<event> events;  // that have not passed; the first has the number passed_count
    std::uint64_t passed_count = 0;
    ordered by_size;    // (size, start)
    ordered by_number;  // (number of the event, start)
  };

  [[nodiscard]] std::size_t known_lane(const stream_ref& stream) const {
    std::size_t at = 0;
    while (at < lanes_.size() && !(lanes_[at].stream == stream)) ++at;
    return at;
  }

  // A stream's lane; one that nothing waits in is used again.
  std::size_t lane_of(const stream_ref& stream) {
    std::size_t at = known_lane(stream);
    if (at < lanes_.size()) return at;
    for (at = 0; at < lanes_.size(); ++at) {
      if (lanes_[at].events.empty() && lanes_[at].by_size.empty()) {
        lanes_[at].stream = stream;
        return at;
      }
    }
    lanes_.push_back({stream, {}, 0, {}, {}});
    return at;
  }

  // Records the present end of a lane's stream; gives the event's number.
  std::uint64_t mark(std::size_t at) {
    lane& one = lanes_[at];
    if (!one.events.empty()) on_.wait(one.stream, one.events.back());
    one.events.push_back(on_.record(one.stream));
    return one.passed_count + one.events.size() - 1;
  }

  void add(std::uint64_t start, std::uint64_t size, std::size_t at, std::uint64_t number) {
    pieces_.emplace(start, piece{size, at, number});
    try {
      lanes_[at].by_size.emplace(size, start);
      lanes_[at].by_number.emplace(number, start);
    } catch (...) {
      lanes_[at].by_size.erase({size, start});
      pieces_.erase(start);
      throw;
    }
    waiting_ += size;
  }

  void remove(std::uint64_t start) noexcept {
    const auto there = pieces_.find(start);
    lane& one = lanes_[there->second.lane];
    one.by_size.erase({there->second.size, start});
    one.by_number.erase({there->second.number, start});
    waiting_ -= there->second.size;
    pieces_.erase(there);
  }

  // Only what is written down of a piece; what was cut off is somebody else's already.
  void shorten(std::uint64_t start, std::uint64_t size) noexcept {
    piece& one = pieces_.find(start)->second;
    auto node = lanes_[one.lane].by_size.extract({one.size, start});
    node.value().first = size;
    lanes_[one.lane].by_size.insert(std::move(node));
    waiting_ -= one.size > size ? one.size - size : 0;
    one.size = size;
  }

  // Makes a piece and those beside it that are in the same lane one; it waits for the latest of their events.
  void join_neighbours(std::uint64_t start) noexcept {
    auto at = pieces_.find(start);
    if (at != pieces_.begin()) {
      if (const auto before = std::prev(at); touches(*before, *at)) at = join(before, at);
    }
    if (const auto after = std::next(at); after != pieces_.end() && touches(*at, *after)) join(at, after);
  }

  using entry = typename std::map<std::uint64_t, piece>::value_type;
  using position = typename std::map<std::uint64_t, piece>::iterator;

  [[nodiscard]] bool touches(const entry& first, const entry& second) const noexcept {
    return first.second.lane == second.second.lane && map_->are_neighbours(first.first, second.first);
  }

  position join(position first, position second) noexcept {
    lane& one = lanes_[first->second.lane];
    one.by_size.erase({second->second.size, second->first});
    one.by_number.erase({second->second.number, second->first});
    auto in_size = one.by_size.extract({first->second.size, first->first});
    auto in_number = one.by_number.extract({first->second.number, first->first});
    first->second.size += second->second.size;
    first->second.number = (std::max)(first->second.number, second->second.number);
    in_size.value().first = first->second.size;
    in_number.value().first = first->second.number;
    one.by_size.insert(std::move(in_size));
    one.by_number.insert(std::move(in_number));
    pieces_.erase(second);
    map_->join(first->first);
    return first;
  }

  void give(std::uint64_t start) noexcept {
    remove(start);
    std::uint64_t size = 0;
    const auto answer = map_->give(start, size);
    VTIER_ASSERT(answer == block_map::answer::done, "a block that waited for a stream is not one of the pool");
  }

  Device on_;
  pool_blocks* map_;
  std::vector<lane> lanes_;
  std::map<std::uint64_t, piece> pieces_;  // by start
  std::uint64_t waiting_ = 0;
};

}  // namespace vtier::detail
