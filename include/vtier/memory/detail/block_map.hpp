// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which parts of some address ranges are taken, for many blocks of all sizes: the bookkeeping of `pool`.
//
// Free blocks hang in lists by size class and merge with their neighbours. Live ones are found by their start in a hash
// table. Small blocks that come back are kept as they are for the next ones of their size, until something finds no
// place without them: then they merge too. It never touches the memory that it keeps account of. The same calls give
// the same addresses.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/memory/detail/block_index.hpp>
#include <vtier/memory/detail/free_lists.hpp>

namespace vtier::detail {

/// A map of live and free blocks in regions, each of which begins somewhere and may become longer and shorter.
///
/// Units   granules: what a granule is, its user knows; starts and sizes below 2^48
/// Needs   regions that stay apart from each other; one thread at a time
/// Cost    give: O(1). take: O(1), but O(free blocks of one size class) where only a block of the request's own class
///         can hold it. 32 bytes for each block and 5 to 11 for each live one; these tables double: O(blocks) then
class block_map : private free_lists {
 public:
  static constexpr std::uint64_t nowhere = ~std::uint64_t{0};

  /// Up to this size a block that comes back is kept as it is for the next one of its class, until something does not
  /// find a place without it.
  static constexpr std::uint64_t kept_max = 4096;

  /// What came of giving a block back.
  enum class answer { done, unknown, twice };

  /// A block, as long as nothing merges with it.
  using handle = std::uint32_t;

  /// Makes a region, of no bytes or more; gives its number, that of a region that was removed where there is one.
  ///
  /// Errors  std::bad_alloc: nothing has changed then
  std::size_t add_region(std::uint64_t start, std::uint64_t size = 0) {
    make_room();
    std::size_t number = 0;
    while (number < regions_.size() && regions_[number] != 0) ++number;
    if (number == regions_.size()) regions_.push_back(0);
    const index edge = enter({start, 0, 0, 0, live, 0});
    link(edge, edge);
    regions_[number] = edge;
    if (size > 0) list(insert(start, size, edge, edge));
    capacity_ += size;
    return number;
  }

  /// Makes a region longer by what follows it.
  ///
  /// Needs   size > 0
  /// Errors  std::bad_alloc: nothing has changed then
  void extend(std::size_t region, std::uint64_t size) {
    make_room();
    const index edge = regions_[region];
    const index last = blocks_[edge].before;
    if (is_free(last)) {
      resize_free(last, blocks_[last].size + size);
    } else {
      const std::uint64_t start = blocks_[last].start + blocks_[last].size;  // an edge has no size
      list(insert(start, size, last, edge));
    }
    capacity_ += size;
  }

  /// How much of the end of a region is free: what a longer region is added to.
  [[nodiscard]] std::uint64_t free_at_end(std::size_t region) const noexcept {
    const index last = blocks_[regions_[region]].before;
    return is_free(last) ? blocks_[last].size : 0;
  }

  /// Makes a region shorter.
  ///
  /// Needs   size <= free_at_end()
  void cut_end(std::size_t region, std::uint64_t size) noexcept {
    VTIER_ASSERT(size <= free_at_end(region), "a region was to lose bytes that are not free");
    if (size == 0) return;
    const index last = blocks_[regions_[region]].before;
    capacity_ -= size;
    if (size < blocks_[last].size) return resize_free(last, blocks_[last].size - size);
    unlist(last);
    remove(last);
  }

  /// Forgets a region.
  ///
  /// Needs   a region without bytes
  void remove_region(std::size_t region) noexcept {
    const index edge = regions_[region];
    VTIER_ASSERT(blocks_[edge].before == edge, "a region was removed that has bytes");
    leave(edge);
    regions_[region] = 0;
  }

  /// Takes a block; `nowhere` where no free block holds it.
  ///
  /// Needs   size > 0, `alignment` a power of two, in granules
  /// Errors  std::bad_alloc: nothing has changed then
  std::uint64_t take(std::uint64_t size, std::uint64_t alignment = 1) {
    if (const index at = take_kept(size, alignment); at != none) {
      blocks_[at].up = live;
      used_ += size;
      live_.put_in(at, blocks_);
      return blocks_[at].start;
    }
    make_room();
    const std::uint64_t wanted = size + (alignment - 1);
    index found = fit(wanted);
    if (found == none) {
      if (!settle()) return nowhere;
      found = fit(wanted);
      if (found == none) return nowhere;
    }
    if ((blocks_[found].start & (alignment - 1)) != 0) [[unlikely]]
      return take_middle(found, size, alignment);
    index at = found;
    if (blocks_[found].size > size) {
      // The rest stays where it is, in its list if it can.
      block& rest = blocks_[found];
      at = insert(rest.start, size, rest.before, found);
      rest.start += size;
      resize_free(found, rest.size - size);
    } else {
      unlist(found);
    }
    make_live(at);
    return blocks_[at].start;
  }

  /// Gives the block that begins at `start` back; `size` gets how long it was.
  ///
  /// Cost    O(blocks) where there is no such block: whether there was one is looked for
  answer give(std::uint64_t start, std::uint64_t& size) noexcept {
    const index at = live_.take_out(start, blocks_);
    if (at == none) return is_within_free(start) ? answer::twice : answer::unknown;
    block& b = blocks_[at];
    size = b.size - b.down;
    used_ -= size;
    if (b.size > kept_max) {
      merge(at);
      return answer::done;
    }
    const index bin = bin_of(b.size);
    b.up = kept;
    b.down = kept_[bin];
    kept_[bin] = at;
    kept_words_[bin / 64] |= std::uint64_t{1} << (bin % 64);
    return answer::done;
  }

  /// Merges what was given back and kept as it was; false where there was nothing.
  bool settle() noexcept {
    bool any = false;
    for (std::size_t word = 0; word < word_count; ++word) {
      for (; kept_words_[word] != 0; kept_words_[word] &= kept_words_[word] - 1) {
        index& head = kept_[word * 64 + static_cast<std::size_t>(std::countr_zero(kept_words_[word]))];
        while (head != none) {
          const index at = head;
          head = blocks_[at].down;
          merge(at);
          any = true;
        }
      }
    }
    return any;
  }

  /// How long the live block is that begins at `start`; 0 where there is none.
  [[nodiscard]] std::uint64_t live_size(std::uint64_t start) const noexcept {
    const index at = live_.find(start, blocks_);
    return at == none ? 0 : blocks_[at].size - blocks_[at].down;
  }

  /// Makes a free block live as it is.
  ///
  /// Needs   a free block
  /// Errors  std::bad_alloc: nothing has changed then
  void claim(handle at) {
    VTIER_ASSERT(is_free(at), "a block was to be taken whole that is not free");
    make_room();
    unlist(at);
    make_live(at);
  }

  /// Cuts a live block in two live ones, the first of `size`.
  ///
  /// Needs   the start of a live block, 0 < size < its size
  /// Errors  std::bad_alloc: nothing has changed then
  void split(std::uint64_t start, std::uint64_t size) {
    make_room();
    const index at = live_.find(start, blocks_);
    VTIER_ASSERT(at != none && size > 0 && size < blocks_[at].size - blocks_[at].down,
                 "a block was cut where it is not");
    const index rest = insert(start + size, blocks_[at].size - size, at, blocks_[at].after);
    blocks_[at].size = size;
    blocks_[rest].down = std::exchange(blocks_[at].down, 0);
    live_.put_in(rest, blocks_);
  }

  /// Makes a live block and the live one behind it one.
  void join(std::uint64_t start) noexcept {
    const index at = live_.find(start, blocks_);
    VTIER_ASSERT(at != none, "two blocks were joined that are not both live");
    const index after = live_.take_out(blocks_[blocks_[at].after].start, blocks_);
    VTIER_ASSERT(after != none && after == blocks_[at].after && blocks_[at].down == 0,
                 "two blocks were joined that are not both live");
    blocks_[at].size += blocks_[after].size;
    blocks_[at].down = blocks_[after].down;
    remove(after);
  }

  /// Whether a block begins at `second` that follows the one at `first` in the same region.
  ///
  /// Needs   the start of a live block
  [[nodiscard]] bool are_neighbours(std::uint64_t first, std::uint64_t second) const noexcept {
    const index at = live_.find(first, blocks_);
    return at != none && blocks_[at].down == 0 && live_.find(second, blocks_) == blocks_[at].after;
  }

  /// Shows each block, region after region, in order of address: (start, size, live, handle).
  template <class Function>
  void for_each(Function&& function) const {
    for (const index edge : regions_) {
      if (edge == 0) continue;
      for (index at = blocks_[edge].after; at != edge; at = blocks_[at].after) {
        const block& b = blocks_[at];
        const std::uint64_t unused = b.up == live ? b.down : 0;
        function(std::uint64_t{b.start}, b.size - unused, b.up == live, handle{at});
      }
    }
  }

  using free_lists::largest_free;
  [[nodiscard]] std::uint64_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::uint64_t used() const noexcept { return used_; }
  [[nodiscard]] std::size_t live_count() const noexcept { return live_.size(); }

 private:
  [[nodiscard]] bool is_within_free(std::uint64_t start) const noexcept {
    bool within = false;
    for_each([&](std::uint64_t first, std::uint64_t size, bool is_live, handle) {
      within = within || (!is_live && start - first < size);
    });
    return within;
  }

  // Room for two more blocks, live or free, so that nothing fails half way.
  void make_room() {
    if (is_short()) [[unlikely]]
      make_more_room();
  }
  [[gnu::noinline, gnu::cold]] void make_more_room() {
    live_.reserve(2 * blocks_.size(), blocks_);
    grow();
  }

  void make_live(index at) noexcept {
    blocks_[at].up = live;
    blocks_[at].down = 0;
    used_ += blocks_[at].size;
    live_.put_in(at, blocks_);
  }

  // A kept block of the size's own class if the last one fits, or of the next class; none where there is none.
  index take_kept(std::uint64_t size, std::uint64_t alignment) noexcept {
    if (size > kept_max) return none;
    index* head = &kept_[bin_of(size)];
    // None stands for the head of the class of no bytes. The next class may be twice as long for the smallest sizes.
    if (blocks_[*head].size < size && size >= fine) ++head;
    const index at = *head;
    if (at == none || (blocks_[at].start & (alignment - 1)) != 0) return none;
    *head = blocks_[at].down;
    blocks_[at].down = static_cast<index>(blocks_[at].size - size);
    return at;
  }

  // Makes a block that is in no list free.
  void merge(index at) noexcept {
    const block b = blocks_[at];
    const bool joins_before = is_free(b.before);
    if (is_free(b.after)) {
      block& after = blocks_[b.after];
      if (!joins_before) {
        after.start = b.start;
        resize_free(b.after, after.size + b.size);
        link(b.before, b.after);
        leave(at);
        return;
      }
      unlist(b.after);
      resize_free(b.before, blocks_[b.before].size + b.size + after.size);
      link(b.before, after.after);
      leave(b.after);
      leave(at);
    } else if (joins_before) {
      resize_free(b.before, blocks_[b.before].size + b.size);
      link(b.before, b.after);
      leave(at);
    } else {
      list(at);
    }
  }

  // A block from an aligned start within a free one.
  std::uint64_t take_middle(index found, std::uint64_t size, std::uint64_t alignment) noexcept {
    const std::uint64_t front = -blocks_[found].start & (alignment - 1);
    const index at = insert(blocks_[found].start + front, blocks_[found].size - front, found, blocks_[found].after);
    resize_free(found, front);
    if (blocks_[at].size > size) {
      list(insert(blocks_[at].start + size, blocks_[at].size - size, at, blocks_[at].after));
      blocks_[at].size = size;
    }
    make_live(at);
    return blocks_[at].start;
  }

  block_index live_;
  std::vector<index> regions_;  // the edge of each; 0 where it was removed
  std::uint64_t used_ = 0;
  std::uint64_t capacity_ = 0;
  std::array<std::uint64_t, word_count> kept_words_{};
  std::array<index, bin_count + 1> kept_{};
};

}  // namespace vtier::detail
