// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which parts of an address range are taken, for many blocks of all sizes: the bookkeeping of `pool`.
//
// Two-level segregated fit (Masmano et al., 2004): free blocks hang in lists by size class, bitmaps find the next list
// that has one, neighbours merge when a block comes back. Every block, live or free, is one 32-byte entry of a hash
// table by its start, so that a pointer finds its block, and the block its neighbours, in one step each. It never
// touches the memory that it keeps account of. The same calls give the same addresses.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>

namespace vtier::detail {

/// A map of live and free blocks.
///
/// Units   granules: what a granule is, its user knows; starts and sizes below 2^48
/// Needs   starts of all regions apart from each other; one thread at a time
/// Cost    give: O(1). take: O(1), but O(free blocks of one size class) where only a block of the request's own class
///         can hold it. The table of 32 bytes for each block, twice over, doubles when it fills up: O(blocks) then
class block_map {
 public:
  static constexpr std::uint64_t nowhere = ~std::uint64_t{0};

  /// What came of giving a block back; a second time is told as such as long as no block before it has taken it in.
  enum class answer { done, unknown, twice };

  block_map() { rebuild(table_min); }

  /// Makes the region longer by what follows it; the first call says where it begins.
  ///
  /// Needs   size > 0; the same `start` in the first call only: later ones continue
  /// Errors  std::bad_alloc: nothing has changed then
  void extend(std::uint64_t start, std::uint64_t size) {
    make_room(1);
    const index last = table_[edge_].before;
    if (last != edge_ && is_free(last)) {
      unlist(last);
      table_[last].size += size;
      list(last);
    } else {
      const index at = enter(start);
      table_[at] = {start, size, last, edge_, 0, 0};
      table_[last].after = at;
      table_[edge_].before = at;
      list(at);
    }
    capacity_ += size;
  }

  /// Takes a block; `nowhere` where no free block holds it.
  ///
  /// Needs   size > 0, `alignment` a power of two, in granules
  /// Errors  std::bad_alloc: nothing has changed then
  std::uint64_t take(std::uint64_t size, std::uint64_t alignment = 1) {
    make_room(2);
    const std::uint64_t wanted = size + (alignment - 1);
    const index found = fit(wanted);
    if (found == end_) return nowhere;
    unlist(found);
    const index at = alignment == 1 ? found : cut_front(found, alignment);
    block& b = table_[at];
    if (b.size > size) cut_rest(at, size);
    b.up = live;
    used_ += size;
    ++live_count_;
    return b.start;
  }

  /// Gives the block that begins at `start` back; `size` gets how long it was.
  answer give(std::uint64_t start, std::uint64_t& size) noexcept {
    index at = find(start);
    block& b = table_[at];
    if (b.up != live) return is_free(at) ? answer::twice : answer::unknown;
    size = b.size;
    used_ -= b.size;
    --live_count_;
    if (const index after = b.after; is_free(after)) {
      unlist(after);
      b.size += table_[after].size;
      link(at, table_[after].after);
      leave(after);
    }
    if (const index before = b.before; is_free(before)) {
      unlist(before);
      table_[before].size += b.size;
      link(before, b.after);
      leave(at);
      at = before;
    }
    list(at);
    return answer::done;
  }

  /// How long the live block is that begins at `start`; 0 where there is none.
  [[nodiscard]] std::uint64_t live_size(std::uint64_t start) const noexcept {
    const index at = find(start);
    return table_[at].up == live ? table_[at].size : 0;
  }

  /// Makes a free block live as it is.
  ///
  /// Needs   the start of a free block
  void claim(std::uint64_t start) noexcept {
    const index at = find(start);
    VTIER_ASSERT(at != edge_ && is_free(at), "a block was to be taken whole that is not free");
    unlist(at);
    table_[at].up = live;
    used_ += table_[at].size;
    ++live_count_;
  }

  /// Cuts a live block in two live ones, the first of `size`.
  ///
  /// Needs   the start of a live block, 0 < size < its size
  /// Errors  std::bad_alloc: nothing has changed then
  void split(std::uint64_t start, std::uint64_t size) {
    make_room(1);
    const index at = find(start);
    VTIER_ASSERT(table_[at].up == live && size > 0 && size < table_[at].size, "a block was cut where it is not");
    const index rest = enter(start + size);
    table_[rest] = {start + size, table_[at].size - size, at, at, live, 0};
    link(rest, table_[at].after);
    link(at, rest);
    table_[at].size = size;
    ++live_count_;
  }

  /// Makes a live block and the live one behind it one.
  void join(std::uint64_t start) noexcept {
    const index at = find(start);
    const index after = table_[at].after;
    VTIER_ASSERT(table_[at].up == live && table_[after].up == live, "two blocks were joined that are not both live");
    table_[at].size += table_[after].size;
    link(at, table_[after].after);
    leave(after);
    --live_count_;
  }

  /// How much of the end of the region is free: what a longer region is added to.
  [[nodiscard]] std::uint64_t free_at_end() const noexcept {
    const index last = table_[edge_].before;
    return last != edge_ && is_free(last) ? table_[last].size : 0;
  }

  /// The longest free block.
  ///
  /// Cost    O(free blocks of the largest size class)
  [[nodiscard]] std::uint64_t largest_free() const noexcept {
    if (summary_ == 0) return 0;
    const std::size_t word = static_cast<unsigned>(std::bit_width(summary_)) - 1;
    const std::size_t bin = word * 64 + static_cast<unsigned>(std::bit_width(words_[word])) - 1;
    std::uint64_t largest = 0;
    for (index at = heads_[bin]; at != end_; at = table_[at].down) largest = (std::max)(largest, table_[at].size);
    return largest;
  }

  /// Shows each block in order of address: (start, size, live).
  template <class Function>
  void for_each(Function&& function) const {
    for (index at = table_[edge_].after; at != edge_; at = table_[at].after) {
      function(std::uint64_t{table_[at].start}, std::uint64_t{table_[at].size}, table_[at].up == live);
    }
  }

  [[nodiscard]] std::uint64_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] std::uint64_t used() const noexcept { return used_; }
  [[nodiscard]] std::size_t live_count() const noexcept { return live_count_; }

 private:
  using index = std::uint32_t;

  // One block, or an empty entry. Links are positions in the table: `before` and `after` of the neighbours in address
  // order, `up` and `down` in a list of free blocks. In a block that is in no list `up` says what it is.
  struct block {
    std::uint64_t start = nowhere;
    std::uint64_t size = 0;
    index before = 0;
    index after = 0;
    index up = empty;
    index down = 0;
  };
  static_assert(sizeof(block) == 32);

  static constexpr index live = ~index{0};
  static constexpr index edge = live - 1;   // the entry beyond the first and the last block, and the end of lists
  static constexpr index left = live - 2;   // a block was here: a search goes on
  static constexpr index empty = live - 3;  // a search ends

  static constexpr std::size_t table_min = 256;
  static constexpr unsigned fine_bits = 5;  // size classes are a 32nd of a power of two apart
  static constexpr std::size_t fine = std::size_t{1} << fine_bits;
  static constexpr std::size_t bin_count = (49 - fine_bits) * fine;
  static constexpr std::size_t word_count = (bin_count + 63) / 64;
  static_assert(word_count <= 64);

  static std::size_t bin_of(std::uint64_t size) noexcept {
    if (size < fine) return size;
    const unsigned shift = static_cast<unsigned>(std::bit_width(size)) - 1 - fine_bits;
    return (std::size_t{shift} << fine_bits) + (size >> shift);
  }

  [[nodiscard]] bool is_free(index at) const noexcept { return table_[at].up < empty; }

  void link(index first, index second) noexcept {
    table_[first].after = second;
    table_[second].before = first;
  }

  // Lists of free blocks.

  void list(index at) noexcept {
    block& b = table_[at];
    const std::size_t bin = bin_of(b.size);
    b.up = end_;
    b.down = heads_[bin];
    table_[b.down].up = at;
    heads_[bin] = at;
    words_[bin / 64] |= std::uint64_t{1} << (bin % 64);
    summary_ |= std::uint64_t{1} << (bin / 64);
  }

  void unlist(index at) noexcept {
    const block& b = table_[at];
    table_[b.down].up = b.up;
    if (b.up != end_) {
      table_[b.up].down = b.down;
      return;
    }
    const std::size_t bin = bin_of(b.size);
    heads_[bin] = b.down;
    if (b.down != end_) return;
    words_[bin / 64] &= ~(std::uint64_t{1} << (bin % 64));
    if (words_[bin / 64] == 0) summary_ &= ~(std::uint64_t{1} << (bin / 64));
  }

  // A block of the wanted size's own class where one of its first few fits, else of the next class that has any, else
  // whichever of its own class fits.
  [[nodiscard]] index fit(std::uint64_t wanted) const noexcept {
    const std::size_t bin = bin_of(wanted);
    if (bin >= bin_count) return end_;
    index at = heads_[bin];
    for (std::size_t tries = 2; tries > 0 && at != end_; at = table_[at].down, --tries) {
      if (table_[at].size >= wanted) return at;
    }
    const std::size_t next = bin + 1;
    std::size_t word = next / 64;
    std::uint64_t bits = word < word_count ? words_[word] & (~std::uint64_t{0} << (next % 64)) : 0;
    if (bits == 0) {
      const std::uint64_t later = word < 63 ? summary_ & (~std::uint64_t{0} << (word + 1)) : 0;
      if (later == 0) {
        while (at != end_ && table_[at].size < wanted) at = table_[at].down;
        return at;
      }
      word = static_cast<std::size_t>(std::countr_zero(later));
      bits = words_[word];
    }
    return heads_[word * 64 + static_cast<std::size_t>(std::countr_zero(bits))];
  }

  // Leaves what lies before the first aligned start to a free block; gives the block that begins there.
  index cut_front(index at, std::uint64_t alignment) noexcept {
    const std::uint64_t start = (table_[at].start + alignment - 1) & ~(alignment - 1);
    const std::uint64_t front = start - table_[at].start;
    if (front == 0) return at;
    const index rest = enter(start);
    table_[rest] = {start, table_[at].size - front, at, at, 0, 0};
    link(rest, table_[at].after);
    link(at, rest);
    table_[at].size = front;
    list(at);
    return rest;
  }

  void cut_rest(index at, std::uint64_t size) noexcept {
    const index rest = enter(table_[at].start + size);
    table_[rest] = {table_[at].start + size, table_[at].size - size, at, at, 0, 0};
    link(rest, table_[at].after);
    link(at, rest);
    table_[at].size = size;
    list(rest);
  }

  // The table: open addressing, next entry first. An entry that leaves where the next one is in use leaves a mark.

  [[nodiscard]] std::size_t home(std::uint64_t start) const noexcept { return start * 0x9E3779B97F4A7C15U >> shift_; }

  // The entry of a start; that of the edge where there is none.
  [[nodiscard]] index find(std::uint64_t start) const noexcept {
    for (std::size_t at = home(start);; at = (at + 1) & mask_) {
      if (table_[at].start == start) return static_cast<index>(at);
      if (table_[at].up == empty) return edge_;
    }
  }

  // An entry for a start that has none.
  index enter(std::uint64_t start) noexcept {
    std::size_t at = home(start);
    while (table_[at].up != empty && table_[at].up != left) at = (at + 1) & mask_;
    if (table_[at].up == empty) ++filled_count_;
    ++block_count_;
    return static_cast<index>(at);
  }

  void leave(index gone) noexcept {
    --block_count_;
    table_[gone].start = nowhere;
    table_[gone].up = left;
    if (table_[(gone + 1) & mask_].up != empty) return;
    for (std::size_t at = gone; table_[at].up == left; at = (at - 1) & mask_) {
      table_[at].up = empty;
      --filled_count_;
    }
  }

  void make_room(std::size_t count) {
    const std::size_t size = mask_ + 1;
    if ((filled_count_ + count) * 2 <= size) return;
    rebuild((block_count_ + count) * 3 > size ? size * 2 : size);
  }

  // A table of `size` entries with the same blocks; the edge's entry and the end of lists stand behind it.
  void rebuild(std::size_t size) {
    std::vector<block> old(size + 2);
    std::vector<index> moved(table_.size());
    old.swap(table_);
    const index old_edge = edge_;
    const index old_end = end_;
    mask_ = size - 1;
    shift_ = 64U - static_cast<unsigned>(std::countr_zero(size));
    edge_ = static_cast<index>(size);
    end_ = edge_ + 1;
    table_[edge_] = {nowhere, 0, edge_, edge_, edge, 0};
    table_[end_].up = edge;
    if (old.empty()) return heads_.fill(end_);
    filled_count_ = block_count_ = 0;
    moved[old_edge] = edge_;
    moved[old_end] = end_;
    const auto is_block = [](const block& b) { return b.up == live || b.up < empty; };
    for (std::size_t i = 0; i < old_edge; ++i) {
      if (is_block(old[i])) moved[i] = enter_copy(old[i]);
    }
    for (std::size_t i = 0; i < size; ++i) {
      block& b = table_[i];
      if (!is_block(b)) continue;
      b.before = moved[b.before];
      b.after = moved[b.after];
      if (b.up == live) continue;
      b.up = moved[b.up];
      b.down = moved[b.down];
    }
    table_[edge_].before = moved[old[old_edge].before];
    table_[edge_].after = moved[old[old_edge].after];
    for (index& head : heads_) head = moved[head];
  }

  index enter_copy(const block& b) noexcept {
    const index at = enter(b.start);
    table_[at] = b;
    return at;
  }

  std::vector<block> table_;
  std::size_t mask_ = 0;
  unsigned shift_ = 0;
  index edge_ = 0;
  index end_ = 0;
  std::size_t filled_count_ = 0;  // entries that a search passes
  std::size_t block_count_ = 0;
  std::size_t live_count_ = 0;
  std::uint64_t used_ = 0;
  std::uint64_t capacity_ = 0;
  std::uint64_t summary_ = 0;
  std::array<std::uint64_t, word_count> words_{};
  std::array<index, bin_count> heads_{};
};

}  // namespace vtier::detail
