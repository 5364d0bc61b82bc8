// SPDX-License-Identifier: Apache-2.0
#pragma once

// Many allocations out of one slab: a resource over a resource.
//
// The upstream resource is asked once, for all of its budget; after that an allocation is bookkeeping, and what was
// freed in pieces joins again up to the whole. The pool never touches the memory it hands out, so it serves device
// memory as well.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/memory/detail/alignment.hpp>
#include <vtier/memory/detail/block_map.hpp>
#include <vtier/memory/resource.hpp>
#include <vtier/memory/slab.hpp>

namespace vtier {

/// The lock of a pool that one thread uses: none.
struct no_lock {
  void lock() noexcept {}
  void unlock() noexcept {}
};

/// Limits of a pool.
struct pool_options {
  /// Memory is made to exist in steps of this, in bytes, where the upstream makes it exist piece by piece.
  std::size_t growth_bytes = 2_MiB;
};

/// A sub-allocator over the whole budget of a resource.
///
/// Units   bytes; every allocation is rounded up to a multiple of 256
/// Needs   a resource of its own: the pool takes what is left of its budget. `Lock` is a mutex type, or no_lock where
///         one thread at a time uses the pool
/// Gives   a resource; alignments up to 2 MiB and beyond, as far as the address range goes. The same calls give the
/// same
///         places
/// Errors  out_of_memory that says whether the free bytes are in pieces; a foreign pointer or a second free is asserted
///         against
/// Threads any, with a real lock
/// Cost    O(1): a few steps in a table of 64 bytes for each block; sometimes the table doubles
template <resource Upstream, class Lock = std::mutex>
class pool {
 public:
  static constexpr memory_kind kind = Upstream::kind;

  explicit pool(const Upstream& from, const pool_options& options = {})
      : state_{std::make_shared<state>(from, options)} {}

  [[nodiscard]] void* allocate(std::size_t size_bytes, std::size_t alignment_bytes) const {
    detail::check_alignment(name(), alignment_bytes);
    if (size_bytes == 0) return nullptr;
    const std::scoped_lock hold{state_->lock};
    return state_->take(size_bytes, alignment_bytes);
  }

  void deallocate(void* pointer, std::size_t size_bytes, std::size_t /*alignment_bytes*/) const noexcept {
    if (pointer == nullptr) return;
    const std::scoped_lock hold{state_->lock};
    state_->give(pointer, size_bytes);
  }

  /// Gives the whole pool as a slab.
  ///
  /// Errors  usage_error always: a pool is made to be cut up; take the slab from the resource below it
  [[nodiscard]] slab make_slab() const {
    throw usage_error(name() + ": a pool gives no slab: make the tier of the resource below it");
  }

  [[nodiscard]] const std::string& name() const noexcept { return state_->memory.properties().name; }
  [[nodiscard]] std::size_t free_bytes() const {
    const std::scoped_lock hold{state_->lock};
    return state_->free_bytes();
  }
  [[nodiscard]] std::size_t used_bytes() const {
    const std::scoped_lock hold{state_->lock};
    return state_->used_bytes();
  }
  /// The most that was in use at a time.
  [[nodiscard]] std::size_t peak_bytes() const {
    const std::scoped_lock hold{state_->lock};
    return state_->peak_bytes;
  }
  /// How much of the address range exists by now: what fragmentation is measured by, against peak_bytes().
  [[nodiscard]] std::size_t reserved_bytes() const {
    const std::scoped_lock hold{state_->lock};
    return state_->committed_bytes;
  }
  /// How many allocations are live.
  [[nodiscard]] std::size_t live_count() const {
    const std::scoped_lock hold{state_->lock};
    return state_->map.live_count();
  }
  [[nodiscard]] std::vector<std::string> notes() const { return state_->from.notes(); }

  friend bool operator==(const pool& a, const pool& b) noexcept { return a.state_ == b.state_; }

 private:
  static constexpr std::size_t granule_bytes = 256;

  struct state {
    state(const Upstream& upstream, const pool_options& options)
        : from{upstream},
          memory{upstream.make_slab()},
          first{reinterpret_cast<std::uintptr_t>(memory.base())},
          capacity_bytes{align_down(memory.size_bytes(), granule_bytes)},
          growth_bytes{(std::max)(options.growth_bytes, granule_bytes)} {
      VTIER_ASSERT(first % granule_bytes == 0, "a slab begins at a multiple of 256");
    }

    void* take(std::size_t size_bytes, std::size_t alignment_bytes) {
      const auto rounded = checked_align_up(size_bytes, granule_bytes);
      if (!rounded || *rounded > capacity_bytes) throw refused(size_bytes, alignment_bytes);
      const std::uint64_t size = *rounded / granule_bytes;
      const std::uint64_t alignment = (std::max)(alignment_bytes, granule_bytes) / granule_bytes;
      std::uint64_t start = map.take(size, alignment);
      if (start == detail::block_map::nowhere) {
        const auto wanted = checked_add(*rounded, (alignment - 1) * granule_bytes);
        if (!wanted || !grow(*wanted)) throw refused(size_bytes, alignment_bytes);
        start = map.take(size, alignment);
      }
      peak_bytes = (std::max)(peak_bytes, used_bytes());
      return reinterpret_cast<void*>(static_cast<std::uintptr_t>(start * granule_bytes));
    }

    void give(void* pointer, std::size_t size_bytes) noexcept {
      const auto address = reinterpret_cast<std::uintptr_t>(pointer);
      std::uint64_t size = 0;
      const auto answer =
          address % granule_bytes == 0 ? map.give(address / granule_bytes, size) : detail::block_map::answer::unknown;
      VTIER_ASSERT(answer != detail::block_map::answer::twice, "a pointer was given back to its pool twice");
      VTIER_ASSERT(answer == detail::block_map::answer::done,
                   "a pointer was given to a pool that does not own it, or twice");
      VTIER_ASSERT(align_up(size_bytes, granule_bytes) == size * granule_bytes,
                   "a pointer was given back to its pool with another size than it was taken with");
    }

    // Makes a free block of `wanted_bytes` exist at the end; false where the address range ends before that.
    bool grow(std::size_t wanted_bytes) {
      const std::size_t rest_bytes = static_cast<std::size_t>(map.free_at_end()) * granule_bytes;
      const auto end_bytes = checked_add(committed_bytes - rest_bytes, wanted_bytes);
      if (!end_bytes || *end_bytes > capacity_bytes) return false;
      const auto stepped_bytes = checked_add(*end_bytes, growth_bytes - 1 - (*end_bytes - 1) % growth_bytes);
      const std::size_t target_bytes = (std::min)(stepped_bytes.value_or(capacity_bytes), capacity_bytes);
      memory.commit(target_bytes);
      map.extend((first + committed_bytes) / granule_bytes, (target_bytes - committed_bytes) / granule_bytes);
      committed_bytes = target_bytes;
      return true;
    }

    [[nodiscard]] std::size_t used_bytes() const noexcept { return map.used() * granule_bytes; }
    [[nodiscard]] std::size_t free_bytes() const noexcept { return capacity_bytes - used_bytes(); }

    [[nodiscard]] out_of_memory refused(std::size_t size_bytes, std::size_t alignment_bytes) const {
      const std::size_t at_end_bytes =
          capacity_bytes - committed_bytes + static_cast<std::size_t>(map.free_at_end()) * granule_bytes;
      const std::size_t largest_bytes =
          (std::max)(static_cast<std::size_t>(map.largest_free()) * granule_bytes, at_end_bytes);
      const std::string& name = memory.properties().name;
      std::string text = name + ": asked " + format_bytes(size_bytes);
      if (alignment_bytes > granule_bytes) text += " at a multiple of " + format_bytes(alignment_bytes);
      text += ", free " + format_bytes(free_bytes()) + ", of these " + format_bytes(largest_bytes) +
              " in one piece: free something or raise the budget";
      return {name, size_bytes, free_bytes(), text};
    }

    Lock lock;
    Upstream from;
    slab memory;
    const std::uintptr_t first;
    const std::size_t capacity_bytes;
    const std::size_t growth_bytes;
    detail::block_map map;
    std::size_t committed_bytes = 0;
    std::size_t peak_bytes = 0;
  };

  std::shared_ptr<state> state_;
};

}  // namespace vtier
