// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where the memory of a pool comes from, and when: ranges that grow, or chunks.
//
// Memory that grows where it stands is taken as several ranges, each with addresses for the whole budget. What cannot
// be placed grows the range whose free end helps most, else the one that has least, so that large blocks that follow
// each other stand in different ranges and can grow into each other's place when they are gone. A step of GPT-2 124M
// (logits, their fp32 copy, its gradient) needs 1.16 times its live bytes in one range and less than 1.03 in four.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/memory/detail/block_map.hpp>
#include <vtier/memory/detail/poison.hpp>
#include <vtier/memory/detail/pool_blocks.hpp>
#include <vtier/memory/resource.hpp>
#include <vtier/memory/slab.hpp>

namespace vtier::detail {

/// A resource whose slabs may grow, and that gives several of them over the same budget.
template <class R>
concept growing_resource = resource<R> && requires(const R& r, std::size_t count) {
  { r.grows() } -> std::convertible_to<bool>;
  { r.make_slabs(count) } -> std::same_as<std::vector<slab>>;
};

/// The memory below a pool.
///
/// Units   bytes; the block map counts granules
/// Threads one at a time
template <resource Upstream>
class pool_memory {
 public:
  static constexpr std::size_t granule_bytes = 256;  // of the block map
  static constexpr std::size_t page_bytes = 4096;
  static constexpr std::size_t range_count = 4;

  /// `chunk_bytes` 0: ranges, but chunks of a device that has no memory that grows.
  ///
  /// Errors  whatever the resource says
  pool_memory(const Upstream& from, pool_blocks& blocks, std::size_t growth_bytes, std::size_t chunk_bytes)
      : from_{from},
        blocks_{&blocks},
        growth_bytes_{growth_bytes},
        chunk_bytes_{(std::min)(chunk_bytes, std::size_t{1} << 48U)} {
    if constexpr (growing_resource<Upstream>) {
      if (chunk_bytes_ == 0 && !from_.grows()) chunk_bytes_ = (std::max)(from_.free_bytes() / 256, std::size_t{2_MiB});
    }
    if (chunk_bytes_ != 0) return;
    std::vector<slab> slabs;
    if constexpr (growing_resource<Upstream>) {
      slabs = from_.make_slabs(range_count);
    } else {
      slabs.push_back(from_.make_slab());
    }
    capacity_bytes_ = align_down(slabs.front().size_bytes(), granule_bytes);
    step_bytes_ = (std::max)(slabs.front().properties().granule_bytes, granule_bytes);
    if (slabs.size() > 1) {
      blocks_->set_small_range(reinterpret_cast<std::uintptr_t>(slabs.front().base()) / granule_bytes,
                               capacity_bytes_ / granule_bytes);
    }
    for (slab& s : slabs) {
      const auto first = reinterpret_cast<std::uintptr_t>(s.base());
      VTIER_ASSERT(first % granule_bytes == 0, "a slab begins at a multiple of 256");
      block_map& map = blocks_->map_at(first / granule_bytes);
      pieces_.push_back({&map, 0, 0, std::move(s)});
      pieces_.back().region = map.add_region(first / granule_bytes);
    }
  }
  pool_memory(const pool_memory&) = delete;
  pool_memory& operator=(const pool_memory&) = delete;
  ~pool_memory() {
    for (const piece& p : pieces_) unmark(p, 0);
  }

  [[nodiscard]] const Upstream& from() const noexcept { return from_; }
  [[nodiscard]] std::size_t reserved_bytes() const noexcept { return reserved_bytes_; }
  [[nodiscard]] std::size_t reserved_peak_bytes() const noexcept { return reserved_peak_bytes_; }
  /// What there is and what may still come.
  [[nodiscard]] std::size_t capacity_bytes() const {
    return chunk_bytes_ == 0 ? capacity_bytes_ : reserved_bytes_ + from_.free_bytes();
  }

  /// Makes a free block of `wanted_bytes` exist in a map; false where the budget ends before that.
  ///
  /// Errors  out_of_memory where what is below has less; std::bad_alloc: nothing is lost
  bool grow(block_map& map, std::size_t wanted_bytes) {
    const auto wanted = checked_align_up(wanted_bytes, granule_bytes);
    if (!wanted) return false;
    return chunk_bytes_ == 0 ? grow_range(map, *wanted) : add_chunk(map, *wanted);
  }

  /// Gives back what is free at the ends of ranges, and chunks that are free as a whole; tells how much.
  std::size_t trim() noexcept {
    blocks_->settle();
    const std::size_t before = reserved_bytes_;
    if (chunk_bytes_ == 0) {
      for (piece& p : pieces_) shrink(p, used_end(p));
      return before - reserved_bytes_;
    }
    std::erase_if(pieces_, [this](const piece& p) {
      if (free_end(p) != p.size_bytes) return false;
      unmark(p, 0);
      p.map->cut_end(p.region, p.size_bytes / granule_bytes);
      p.map->remove_region(p.region);
      reserved_bytes_ -= p.size_bytes;
      return true;
    });
    return before - reserved_bytes_;
  }

  /// The longest block that could be made to exist, what is free at the end of a range included.
  [[nodiscard]] std::size_t growth_bytes_max() const {
    if (chunk_bytes_ != 0) return from_.free_bytes();
    std::size_t most = 0;
    for (const piece& p : pieces_) {
      const std::size_t least = used_elsewhere(p) + used_bytes(p);
      most = (std::max)(most, least < capacity_bytes_ ? capacity_bytes_ - least : 0);
    }
    return most;
  }

 private:
  // A range or a chunk: so many bytes of a slab exist.
  struct piece {
    block_map* map = nullptr;
    std::size_t region = 0;
    std::size_t size_bytes = 0;
    slab memory;
  };

  // A chunk as a slab.
  class chunk_backing final : public slab_backing {
   public:
    chunk_backing(const Upstream& from, std::size_t size_bytes)
        : from_{from}, size_bytes_{size_bytes}, pointer_{from_.allocate(size_bytes, granule_bytes)} {}
    ~chunk_backing() override { from_.deallocate(pointer_, size_bytes_, granule_bytes); }
    std::byte* base() override { return static_cast<std::byte*>(pointer_); }

   private:
    Upstream from_;
    std::size_t size_bytes_;
    void* pointer_;
  };

  [[nodiscard]] static std::uintptr_t address(const piece& p) {
    return reinterpret_cast<std::uintptr_t>(p.memory.base());
  }
  [[nodiscard]] std::size_t free_end(const piece& p) const noexcept {
    return p.map->free_at_end(p.region) * granule_bytes;
  }
  [[nodiscard]] std::size_t used_bytes(const piece& p) const noexcept { return p.size_bytes - free_end(p); }
  // The same in steps of the memory below: to where it can shrink.
  [[nodiscard]] std::size_t used_end(const piece& p) const noexcept {
    return (std::min)(align_up(used_bytes(p), step_bytes_), p.size_bytes);
  }
  [[nodiscard]] std::size_t used_elsewhere(const piece& p) const noexcept {
    std::size_t sum = 0;
    for (const piece& other : pieces_) sum += &other != &p ? used_end(other) : 0;
    return sum;
  }

  void extend(piece& p, std::size_t size_bytes) {
    p.map->extend(p.region, (size_bytes - p.size_bytes) / granule_bytes);
    grown(p, size_bytes);
  }
  void grown(piece& p, std::size_t size_bytes) noexcept {
    reserved_bytes_ += size_bytes - p.size_bytes;
    reserved_peak_bytes_ = (std::max)(reserved_peak_bytes_, reserved_bytes_);
    if constexpr (poisons<Upstream::kind>) poison(address(p) + p.size_bytes, size_bytes - p.size_bytes);
    p.size_bytes = size_bytes;
  }

  // What exists and is in no block is marked for AddressSanitizer; what does not exist is not.
  static void unmark(const piece& p, std::size_t from_bytes) noexcept {
    if constexpr (poisons<Upstream::kind>) unpoison(address(p) + from_bytes, p.size_bytes - from_bytes);
  }

  void shrink(piece& p, std::size_t size_bytes) noexcept {
    if (size_bytes >= p.size_bytes) return;
    p.map->cut_end(p.region, (p.size_bytes - size_bytes) / granule_bytes);
    unmark(p, size_bytes);
    p.memory.shrink(size_bytes);
    reserved_bytes_ -= p.size_bytes - size_bytes;
    p.size_bytes = size_bytes;
  }
  void shrink_others(const piece& p) noexcept {
    for (piece& other : pieces_) {
      if (&other != &p) shrink(other, used_end(other));
    }
  }

  [[nodiscard]] bool can_grow(const piece& p, std::size_t wanted_bytes) const noexcept {
    return wanted_bytes <= capacity_bytes_ && used_elsewhere(p) + used_bytes(p) <= capacity_bytes_ - wanted_bytes;
  }

  // The range whose free end saves most, a sixteenth at least, else the one with the fewest bytes; null where none can
  // grow by so much.
  [[nodiscard]] piece* range_for(const block_map& map, std::size_t wanted_bytes) noexcept {
    piece* best = nullptr;
    std::size_t best_saves = 0;
    for (piece& p : pieces_) {
      if (p.map != &map || !can_grow(p, wanted_bytes)) continue;
      const std::size_t saves = free_end(p) >= wanted_bytes / 16 ? free_end(p) : 0;
      if (best == nullptr || saves > best_saves || (saves == best_saves && p.size_bytes < best->size_bytes)) {
        best = &p;
        best_saves = saves;
      }
    }
    return best;
  }

  bool grow_range(block_map& map, std::size_t wanted_bytes) {
    piece* found = range_for(map, wanted_bytes);
    if (found == nullptr) {
      blocks_->settle();
      found = range_for(map, wanted_bytes);
    }
    if (found == nullptr) return false;
    piece& p = *found;
    const std::size_t end = used_bytes(p) + wanted_bytes;
    if (reserved_bytes_ - p.size_bytes > capacity_bytes_ - end) shrink_others(p);
    const std::size_t room = capacity_bytes_ - (reserved_bytes_ - p.size_bytes);
    const std::size_t least = (std::min)(rounded_up(end, step_bytes_), room);
    const std::size_t whole =
        (std::min)(rounded_up(end, (std::max)(align_up(growth_bytes_, step_bytes_), step_bytes_)), room);
    // A whole step may not be there where what was asked is, and where others hold what they do not use.
    if (!commit(p, whole) && (least == whole || !commit(p, least))) {
      shrink_others(p);
      p.memory.commit(least);
      extend(p, least);
    }
    return true;
  }

  bool commit(piece& p, std::size_t size_bytes) {
    try {
      p.memory.commit(size_bytes);
    } catch (const out_of_memory&) {
      return false;
    }
    extend(p, size_bytes);
    return true;
  }

  // To a multiple of a step that need not be a power of two.
  static std::size_t rounded_up(std::size_t size_bytes, std::size_t step_bytes) noexcept {
    return checked_add(size_bytes, step_bytes - 1 - (size_bytes - 1) % step_bytes)
        .value_or((std::numeric_limits<std::size_t>::max)());
  }

  bool add_chunk(block_map& map, std::size_t wanted_bytes) {
    // Whole pages, where there are any: host memory is charged by them.
    const std::size_t left_bytes = align_down(from_.free_bytes(), granule_bytes);
    const std::size_t paged_bytes = checked_align_up(wanted_bytes, page_bytes).value_or(wanted_bytes);
    const std::size_t least = (std::max)((std::min)(paged_bytes, left_bytes), wanted_bytes);
    const std::size_t whole = (std::max)((std::min)(align_up(chunk_bytes_, page_bytes), left_bytes), least);
    if (try_chunk(map, whole) || (whole != least && try_chunk(map, least))) return true;
    trim();
    add_chunk_of(map, least);
    return true;
  }
  bool try_chunk(block_map& map, std::size_t size_bytes) {
    try {
      add_chunk_of(map, size_bytes);
    } catch (const out_of_memory&) {
      return false;
    }
    return true;
  }
  void add_chunk_of(block_map& map, std::size_t size_bytes) {
    slab_properties properties;
    properties.name = from_.name();
    properties.kind = Upstream::kind;
    properties.size_bytes = size_bytes;
    slab memory{std::move(properties), std::make_unique<chunk_backing>(from_, size_bytes)};
    pieces_.push_back({&map, 0, 0, std::move(memory)});
    try {
      pieces_.back().region = map.add_region(address(pieces_.back()) / granule_bytes, size_bytes / granule_bytes);
    } catch (...) {
      pieces_.pop_back();
      throw;
    }
    grown(pieces_.back(), size_bytes);
  }

  Upstream from_;
  pool_blocks* blocks_;
  std::size_t growth_bytes_;
  std::size_t chunk_bytes_;
  std::size_t capacity_bytes_ = 0;
  std::size_t step_bytes_ = granule_bytes;
  std::size_t reserved_bytes_ = 0;
  std::size_t reserved_peak_bytes_ = 0;
  std::vector<piece> pieces_;
};

}  // namespace vtier::detail
