// SPDX-License-Identifier: Apache-2.0
#pragma once

// From the start of a live block to its number: a hash table of cache half-lines, one of which answers nearly always.
//
// Each bucket has six places and a byte of each key's hash; all six bytes are compared in one step. What finds its
// bucket full goes to the next one, and the buckets that it passed count it, so that a search knows when to go on.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/memory/detail/huge_page_allocator.hpp>

namespace vtier::detail {

/// The numbers of some blocks, by their starts. `blocks[number].start` is read from the caller's table.
///
/// Needs   numbers above 0; starts that differ
/// Threads one at a time
/// Cost    O(1)
class block_index {
 public:
  using index = std::uint32_t;
  static constexpr index none = 0;

  block_index() : buckets_(size_min) { adopt_table(); }
  block_index(const block_index&) = delete;
  block_index& operator=(const block_index&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// Makes room for `count` in all.
  ///
  /// Errors  std::bad_alloc: nothing has changed then
  template <class Blocks>
  void reserve(std::size_t count, const Blocks& blocks) {
    std::size_t wanted = buckets_.size();
    while (count > places_used * wanted) wanted *= 2;
    if (wanted == buckets_.size()) return;
    table old(wanted);
    old.swap(buckets_);
    adopt_table();
    size_ = 0;
    for (const bucket& b : old) {
      for (std::size_t i = 0; i < places; ++i) {
        if ((b.word >> (8 * i) & 0xFF) != 0) put_in(b.number[i], blocks);
      }
    }
  }

  /// Adds a block.
  ///
  /// Needs   room for one
  template <class Blocks>
  void put_in(index number, const Blocks& blocks) noexcept {
    const std::uint64_t hash = mixed(blocks[number].start);
    bucket* b = &first_[home_of(hash)];
    while (b->free_places() == 0) {
      b->word += one_passed;
      b = next(b);
    }
    const unsigned bit = lowest_bit(b->free_places()) & ~7U;
    b->word |= tag_of(hash) << bit;
    b->number[bit / 8] = number;
    ++size_;
  }

  /// The block of a start; none where there is no such start.
  template <class Blocks>
  [[nodiscard]] index find(std::uint64_t start, const Blocks& blocks) const noexcept {
    const place p = search(start, blocks);
    return p.in == nullptr ? none : p.in->number[p.bit / 8];
  }

  /// Takes one out and gives its number; none where there is no such start.
  template <class Blocks>
  index take_out(std::uint64_t start, const Blocks& blocks) noexcept {
    const place p = search(start, blocks);
    if (p.in == nullptr) [[unlikely]]
      return none;
    p.in->word &= ~(std::uint64_t{0xFF} << p.bit);
    for (bucket* b = &first_[home_of(mixed(start))]; b != p.in; b = next(b)) b->word -= one_passed;
    --size_;
    return p.in->number[p.bit / 8];
  }

 private:
  static constexpr std::size_t places = 6;
  static constexpr std::size_t places_used = 3;  // of these on average, where the table is as full as it gets
  static constexpr std::size_t size_min = 64;
  static constexpr std::uint64_t one_passed = std::uint64_t{1} << 48U;
  static constexpr std::uint64_t ones = 0x0000'0101'0101'0101U;
  static constexpr std::uint64_t highs = 0x0000'8080'8080'8080U;

  // Bytes 0 to 5 of `word`: 0 for a free place, else 0x80 and seven bits of a hash. Bytes 6 and 7: how many have
  // passed.
  struct bucket {
    std::uint64_t word = 0;
    std::array<index, places> number{};

    [[nodiscard]] std::uint64_t free_places() const noexcept { return ~word & highs; }
    [[nodiscard]] std::uint64_t passed() const noexcept { return word / one_passed; }
    // The high bits of the bytes that are equal to the tag, and perhaps of some above such a byte.
    [[nodiscard]] std::uint64_t matches(std::uint64_t tag) const noexcept {
      const std::uint64_t differences = word ^ (tag * ones);
      return (differences - ones) & ~differences & highs;
    }
  };
  static_assert(sizeof(bucket) == 32);
  using table = std::vector<bucket, huge_page_allocator<bucket>>;

  struct place {
    bucket* in = nullptr;
    unsigned bit = 0;  // of its byte
  };

  static unsigned lowest_bit(std::uint64_t bits) noexcept { return static_cast<unsigned>(__builtin_ctzll(bits)); }
  static std::uint64_t mixed(std::uint64_t start) noexcept { return start * 0x9E3779B97F4A7C15U; }
  static std::uint64_t tag_of(std::uint64_t hash) noexcept { return 0x80U | hash >> 57U; }
  [[nodiscard]] std::size_t home_of(std::uint64_t hash) const noexcept { return hash >> 32U & mask_; }
  [[nodiscard]] bucket* next(bucket* b) const noexcept {
    return &first_[(static_cast<std::size_t>(b - first_) + 1) & mask_];
  }

  template <class Blocks>
  [[nodiscard]] place search(std::uint64_t start, const Blocks& blocks) const noexcept {
    const std::uint64_t hash = mixed(start);
    for (bucket* b = &first_[home_of(hash)];; b = next(b)) {
      for (std::uint64_t m = b->matches(tag_of(hash)); m != 0; m &= m - 1) {
        const unsigned bit = lowest_bit(m) & ~7U;
        if (blocks[b->number[bit / 8]].start == start) [[likely]]
          return {b, bit};
      }
      if (b->passed() == 0) return {};
    }
  }

  void adopt_table() noexcept {
    first_ = buckets_.data();
    mask_ = buckets_.size() - 1;
  }

  table buckets_;
  bucket* first_ = nullptr;
  std::size_t mask_ = 0;
  std::size_t size_ = 0;
};

}  // namespace vtier::detail
