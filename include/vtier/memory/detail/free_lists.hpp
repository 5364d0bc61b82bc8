// SPDX-License-Identifier: Apache-2.0
#pragma once

// The blocks of a block map, and the lists of those that are free.
//
// Two-level segregated fit (Masmano et al., 2004): free blocks hang in lists by size class, and bitmaps find the next
// list that has one. A base class of block_map, so that the reader has the lists apart from what blocks are used for.

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <new>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/memory/detail/block_index.hpp>
#include <vtier/memory/detail/huge_page_allocator.hpp>

namespace vtier::detail {

/// Blocks by number, and lists of some of them by size.
///
/// Units   granules
/// Threads one at a time
/// Cost    O(1), but fit(): O(free blocks of one size class) where only a block of the request's own class can hold it
class free_lists {
 public:
  /// The longest free block.
  ///
  /// Cost    O(free blocks of the largest size class)
  [[nodiscard]] std::uint64_t largest_free() const noexcept {
    if (summary_ == 0) return 0;
    const std::size_t word = static_cast<unsigned>(std::bit_width(summary_)) - 1;
    const index bin = static_cast<index>(word * 64 + static_cast<unsigned>(std::bit_width(words_[word])) - 1);
    std::uint64_t largest = 0;
    for (index at = blocks_[bin].down; at != bin; at = blocks_[at].down) {
      largest = (std::max)(largest, blocks_[at].size);
    }
    return largest;
  }

 protected:
  using index = std::uint32_t;

  // A block. `before` and `after` are its neighbours in address order, around in a circle with the edge of its region,
  // which has the region's start and no bytes. `up` and `down` are its neighbours in a list of free blocks, a circle
  // with the head of the list, whose number is that of the size class. In live blocks and edges `up` says that they
  // are.
  struct block {
    std::uint64_t start = 0;
    std::uint64_t size = 0;
    index before = 0;
    index after = 0;
    index up = 0;
    index down = 0;
  };
  static_assert(sizeof(block) == 32);

  static constexpr index live = ~index{0};
  static constexpr index kept = live - 1;
  static constexpr index none = block_index::none;

  static constexpr unsigned fine_bits = 5;  // size classes are a 32nd of a power of two apart
  static constexpr std::size_t fine = std::size_t{1} << fine_bits;
  static constexpr index bin_count = (49 - fine_bits) * fine;
  static constexpr std::size_t word_count = bin_count / 64 + 1;
  static_assert(word_count < 64);

  // By how much a size is shifted for its class: its first bits, six of them where it has so many, are the class.
  static unsigned shift_of(std::uint64_t size) noexcept {
    return (63U ^ static_cast<unsigned>(__builtin_clzll(size | fine))) - fine_bits;
  }
  static index bin_of(std::uint64_t size) noexcept {
    const unsigned shift = shift_of(size);
    return (shift << fine_bits) + static_cast<index>(size >> shift);
  }
  static bool have_same_bin(std::uint64_t a, std::uint64_t b) noexcept { return (a ^ b) >> shift_of(a) == 0; }

  free_lists() : blocks_(bin_count) {
    for (index bin = 0; bin < bin_count; ++bin) blocks_[bin].up = blocks_[bin].down = bin;
  }

  [[nodiscard]] bool is_free(index at) const noexcept { return blocks_[at].up < kept; }

  void link(index first, index second) noexcept {
    blocks_[first].after = second;
    blocks_[second].before = first;
  }

  // Whether there are less than two spare ones. What follows the last one is number 0, and that is followed by itself.
  [[nodiscard]] bool is_short() const noexcept { return blocks_[spare_].down == none; }

  // Makes twice as many.
  //
  // Errors  std::bad_alloc: nothing has changed then
  void grow() {
    const std::size_t size = blocks_.size();
    if (size > (std::numeric_limits<index>::max)() / 2) throw std::bad_alloc{};
    blocks_.resize(2 * size);
    for (std::size_t at = 2 * size; at-- > size;) leave(static_cast<index>(at));
  }

  index enter(const block& b) noexcept {
    const index at = spare_;
    spare_ = blocks_[at].down;
    blocks_[at] = b;
    return at;
  }

  index insert(std::uint64_t start, std::uint64_t size, index before, index after) noexcept {
    const index at = enter({start, size, before, after, live, 0});
    blocks_[before].after = at;
    blocks_[after].before = at;
    return at;
  }

  void leave(index at) noexcept {
    blocks_[at].down = spare_;
    spare_ = at;
  }

  void remove(index at) noexcept {
    link(blocks_[at].before, blocks_[at].after);
    leave(at);
  }

  // Lists of free blocks.

  void list(index at) noexcept {
    block& b = blocks_[at];
    const index bin = bin_of(b.size);
    b.up = bin;
    b.down = blocks_[bin].down;
    blocks_[b.down].up = at;
    blocks_[bin].down = at;
    words_[bin / 64] |= std::uint64_t{1} << (bin % 64);
    summary_ |= std::uint64_t{1} << (bin / 64);
  }

  // Without a jump that depends on what is left of the list: it would be foreseen wrongly half of the time.
  void unlist(index at) noexcept {
    const index up = blocks_[at].up;
    const index down = blocks_[at].down;
    blocks_[up].down = down;
    blocks_[down].up = up;
    const index emptied = up == down ? 1 : 0;  // the head alone is left
    const index bin = up & (0 - emptied);
    words_[bin / 64] &= ~(std::uint64_t{emptied} << (bin % 64));
    summary_ &= ~(std::uint64_t{words_[bin / 64] == 0} << (bin / 64));
  }

  // A free block keeps its place where it keeps its class.
  void resize_free(index at, std::uint64_t size) noexcept {
    const bool moves = !have_same_bin(blocks_[at].size, size);
    if (moves) unlist(at);
    blocks_[at].size = size;
    if (moves) list(at);
  }

  // A block of the wanted size's own class where the first fits, else of the next class that has any, else whichever of
  // its own class fits.
  [[nodiscard]] index fit(std::uint64_t wanted) const noexcept {
    if (wanted >> 48U != 0) return none;
    const index bin = bin_of(wanted);
    index at = blocks_[bin].down;  // the head itself has no size
    if (blocks_[at].size >= wanted) return at;
    const index next = bin + 1;
    std::size_t word = next / 64;
    std::uint64_t bits = words_[word] & (~std::uint64_t{0} << (next % 64));
    if (bits == 0) {
      const std::uint64_t later = summary_ & (~std::uint64_t{0} << (word + 1));
      if (later == 0) {
        while (at != bin && blocks_[at].size < wanted) at = blocks_[at].down;
        return at != bin ? at : none;
      }
      word = static_cast<std::size_t>(std::countr_zero(later));
      bits = words_[word];
    }
    return blocks_[word * 64 + static_cast<std::size_t>(std::countr_zero(bits))].down;
  }

  std::vector<block, huge_page_allocator<block>> blocks_;  // first the heads of the lists

 private:
  index spare_ = none;
  std::uint64_t summary_ = 0;
  std::array<std::uint64_t, word_count> words_{};
};

}  // namespace vtier::detail
