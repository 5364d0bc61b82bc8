// SPDX-License-Identifier: Apache-2.0
#pragma once

// The blocks of a pool: small ones apart from large ones, where the memory comes in several ranges.
//
// A small block that outlives its neighbours would keep a large hole from growing, or from going back. With a range of
// their own small blocks pin each other only.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <vtier/core/config.hpp>
#include <vtier/memory/detail/block_map.hpp>

namespace vtier::detail {

/// One or two block maps that are used as one; see block_map for what the calls mean.
///
/// Units   granules
/// Threads one at a time
class pool_blocks {
 public:
  static constexpr std::uint64_t nowhere = block_map::nowhere;

  /// Says that [start, start + size) is for small blocks; without that all are in one map.
  void set_small_range(std::uint64_t start, std::uint64_t size) noexcept {
    small_start_ = start;
    small_size_ = size;
  }

  /// The map that blocks of a size are taken from, and the other one, from which they may come too; null where there is
  /// one only.
  [[nodiscard]] block_map& map_for(std::uint64_t size) noexcept {
    return size <= block_map::kept_max && small_size_ != 0 ? small_ : large_;
  }
  [[nodiscard]] block_map* other(const block_map& map) noexcept {
    return small_size_ == 0 ? nullptr : &map == &small_ ? &large_ : &small_;
  }
  [[nodiscard]] block_map& map_at(std::uint64_t start) noexcept {
    return start - small_start_ < small_size_ ? small_ : large_;
  }
  [[nodiscard]] const block_map& map_at(std::uint64_t start) const noexcept {
    return start - small_start_ < small_size_ ? small_ : large_;
  }

  std::uint64_t take(std::uint64_t size, std::uint64_t alignment = 1) { return map_for(size).take(size, alignment); }
  block_map::answer give(std::uint64_t start, std::uint64_t& size) noexcept { return map_at(start).give(start, size); }
  [[nodiscard]] std::uint64_t live_size(std::uint64_t start) const noexcept { return map_at(start).live_size(start); }
  void claim(std::uint64_t start, block_map::handle block) { map_at(start).claim(block); }
  void split(std::uint64_t start, std::uint64_t size) { map_at(start).split(start, size); }
  void join(std::uint64_t start) noexcept { map_at(start).join(start); }
  [[nodiscard]] bool are_neighbours(std::uint64_t first, std::uint64_t second) const noexcept {
    return &map_at(first) == &map_at(second) && map_at(first).are_neighbours(first, second);
  }
  void settle() noexcept {
    small_.settle();
    large_.settle();
  }
  template <class Function>
  void for_each(Function&& function) const {
    small_.for_each(function);
    large_.for_each(function);
  }
  [[nodiscard]] std::uint64_t largest_free() const noexcept {
    return (std::max)(small_.largest_free(), large_.largest_free());
  }
  [[nodiscard]] std::uint64_t used() const noexcept { return small_.used() + large_.used(); }
  [[nodiscard]] std::size_t live_count() const noexcept { return small_.live_count() + large_.live_count(); }

 private:
  block_map small_;
  block_map large_;
  std::uint64_t small_start_ = 0;
  std::uint64_t small_size_ = 0;
};

}  // namespace vtier::detail
