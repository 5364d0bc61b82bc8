// SPDX-License-Identifier: Apache-2.0
#pragma once

// The rules by which PyTorch's caching allocator cuts up device memory, as a yardstick: written anew from what is
// published about them, on addresses instead of a GPU.
//
// It stands for the rules, not for that library's speed: there are no streams, events or statistics here, and a segment
// costs a cut into reserved addresses where cudaMalloc would cost much more. Defaults only: no limit on splits, no
// rounding to parts of powers of two, no expandable segments.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>

#include "support/address_space.hpp"

namespace vtier::bench {

/// A caching allocator over `address_space`.
///
/// Units   bytes; requests are rounded up to a multiple of 512
/// Gives   null where the budget has no room even after the cached segments went back
/// Threads any: one lock
/// Cost    O(log free blocks); a segment from below where no free block fits
/// Source  DeVito, A guide to PyTorch's CUDA Caching Allocator, 2022; PyTorch, CUDA semantics, memory management
class caching_rules {
 public:
  static constexpr bool touchable = false;
  static constexpr std::size_t block_bytes = 512;
  static constexpr std::size_t small_bytes = std::size_t{1} << 20U;  // requests up to it share small segments
  static constexpr std::size_t small_segment_bytes = std::size_t{2} << 20U;
  static constexpr std::size_t middle_bytes = std::size_t{10} << 20U;  // requests below it share large ones
  static constexpr std::size_t large_segment_bytes = std::size_t{20} << 20U;
  static constexpr std::size_t segment_step_bytes = std::size_t{2} << 20U;  // of segments for one larger request

  explicit caching_rules(std::size_t budget_bytes) : below_{budget_bytes} {}
  caching_rules(const caching_rules&) = delete;
  caching_rules& operator=(const caching_rules&) = delete;
  ~caching_rules() {
    for (auto& [address, b] : live_) insert(b);
    release_cached();
  }

  [[nodiscard]] void* allocate(std::size_t size_bytes) {
    const std::scoped_lock hold{lock_};
    const auto rounded = checked_align_up((std::max)(size_bytes, block_bytes), block_bytes);
    if (!rounded) return nullptr;
    const bool small = *rounded <= small_bytes;
    block* taken = best_fit(*rounded, small);
    if (taken == nullptr) taken = new_segment(*rounded, small);
    if (taken == nullptr) return nullptr;
    const std::size_t rest = taken->size_bytes - *rounded;
    if (small ? rest >= block_bytes : rest > small_bytes) split(*taken, *rounded);
    live_.emplace(taken->address, taken);
    return taken->address;
  }

  void deallocate(void* pointer, std::size_t /*size_bytes*/) {
    if (pointer == nullptr) return;
    const std::scoped_lock hold{lock_};
    const auto at = live_.find(static_cast<std::byte*>(pointer));
    VTIER_ASSERT(at != live_.end(), "a pointer was given back that is not live");
    block* const freed = at->second;
    live_.erase(at);
    insert(freed);
  }

  /// What the segments hold.
  [[nodiscard]] std::optional<std::size_t> taken_bytes() { return below_.committed_bytes(); }

 private:
  struct block {
    std::byte* address = nullptr;
    std::size_t size_bytes = 0;
    bool small = false;
    bool free = false;
    block* before = nullptr;  // neighbours in the segment
    block* after = nullptr;
  };
  struct by_size {
    bool operator()(const block* a, const block* b) const noexcept {
      return std::tie(a->size_bytes, a->address) < std::tie(b->size_bytes, b->address);
    }
  };
  using free_blocks = std::set<block*, by_size>;

  free_blocks& free_of(bool small) noexcept { return small ? small_free_ : large_free_; }

  block* best_fit(std::size_t size_bytes, bool small) {
    free_blocks& from = free_of(small);
    block wanted;
    wanted.size_bytes = size_bytes;
    const auto at = from.lower_bound(&wanted);
    if (at == from.end()) return nullptr;
    block* const found = *at;
    from.erase(at);
    found->free = false;
    return found;
  }

  block* new_segment(std::size_t size_bytes, bool small) {
    const std::size_t segment_bytes = small                       ? small_segment_bytes
                                      : size_bytes < middle_bytes ? large_segment_bytes
                                                                  : align_up(size_bytes, segment_step_bytes);
    void* got = from_below(segment_bytes);
    if (got == nullptr) {
      release_cached();
      got = from_below(segment_bytes);
    }
    if (got == nullptr) return nullptr;
    auto* const made = new block;
    made->address = static_cast<std::byte*>(got);
    made->size_bytes = segment_bytes;
    made->small = small;
    return made;
  }

  void* from_below(std::size_t size_bytes) {
    try {
      return below_.allocate(size_bytes, block_bytes);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }

  // Keeps the first bytes and frees the rest.
  void split(block& b, std::size_t size_bytes) {
    auto* const rest = new block{b};
    rest->address += size_bytes;
    rest->size_bytes -= size_bytes;
    rest->before = &b;
    if (b.after != nullptr) b.after->before = rest;
    b.after = rest;
    b.size_bytes = size_bytes;
    rest->free = true;
    free_of(b.small).insert(rest);
  }

  // Joins a block with free neighbours and makes it free.
  void insert(block* b) {
    free_blocks& to = free_of(b->small);
    if (block* const left = b->before; left != nullptr && left->free) {
      to.erase(left);
      left->size_bytes += b->size_bytes;
      left->after = b->after;
      if (b->after != nullptr) b->after->before = left;
      delete b;
      b = left;
    }
    if (block* const right = b->after; right != nullptr && right->free) {
      to.erase(right);
      b->size_bytes += right->size_bytes;
      b->after = right->after;
      if (right->after != nullptr) right->after->before = b;
      delete right;
    }
    b->free = true;
    to.insert(b);
  }

  // Gives back the segments that are one free block.
  void release_cached() {
    for (free_blocks* from : {&small_free_, &large_free_}) {
      for (auto at = from->begin(); at != from->end();) {
        block* const b = *at;
        if (b->before != nullptr || b->after != nullptr) {
          ++at;
          continue;
        }
        at = from->erase(at);
        below_.deallocate(b->address, b->size_bytes, block_bytes);
        delete b;
      }
    }
  }

  std::mutex lock_;
  address_space below_;
  free_blocks small_free_;
  free_blocks large_free_;
  std::unordered_map<std::byte*, block*> live_;
};

}  // namespace vtier::bench
