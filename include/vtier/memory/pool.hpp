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
#include <vtier/device/device.hpp>
#include <vtier/memory/detail/alignment.hpp>
#include <vtier/memory/detail/block_map.hpp>
#include <vtier/memory/detail/pool_device.hpp>
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
///         one thread at a time uses the pool. `Device` is the one whose streams the pool follows: that of the resource
///         where it is on one, or one that is given, for pinned memory that its copies use
/// Gives   a resource; alignments up to 2 MiB and beyond, as far as the address range goes. The same calls give the
/// same
///         places
/// Errors  out_of_memory that says whether the free bytes are in pieces; a foreign pointer or a second free is asserted
///         against
/// Threads any, with a real lock
/// Cost    O(1): a few steps in a table of 64 bytes for each block; sometimes the table doubles, and where only a free
///         block of the request's own size class (a 32nd of a power of two) can hold it, that class is searched. With a
///         stream: an event for each free, O(log(pieces that wait))
template <resource Upstream, class Lock = std::mutex, class Device = typename detail::device_under<Upstream>::type>
class pool : public detail::pool_streams<Device> {
  using stream_or_none = typename detail::lanes_of<Device>::stream_or_none;

 public:
  static constexpr memory_kind kind = Upstream::kind;

  explicit pool(const Upstream& from, const pool_options& options = {})
      : state_{std::make_shared<state>(from, detail::device_under<Upstream>::of(from), options)} {}
  pool(const Upstream& from, const Device& on, const pool_options& options = {}) requires device<Device>
      : state_{std::make_shared<state>(from, on, options)} {}

  /// Gives bytes that nothing uses any more; the host blocks where only bytes are left that streams still use.
  [[nodiscard]] void* allocate(std::size_t size_bytes, std::size_t alignment_bytes) const {
    detail::check_alignment(name(), alignment_bytes);
    if (size_bytes == 0) return nullptr;
    std::unique_lock hold{state_->lock};
    return state_->take(hold, size_bytes, alignment_bytes);
  }

  /// Takes bytes back at once: nothing uses them any more.
  void deallocate(void* pointer, std::size_t size_bytes, std::size_t /*alignment_bytes*/) const noexcept {
    if (pointer == nullptr) return;
    const std::scoped_lock hold{state_->lock};
    state_->give(pointer, size_bytes);
  }

  /// Gives bytes for work enqueued on `stream` from now on; the host does not block. What the stream itself gave back
  /// comes first, then what nothing uses; where there is neither, the stream waits for others.
  [[nodiscard]] void* allocate(stream_or_none stream, std::size_t size_bytes,
                               std::size_t alignment_bytes) const requires device<Device> {
    detail::check_alignment(name(), alignment_bytes);
    if (size_bytes == 0) return nullptr;
    const std::scoped_lock hold{state_->lock};
    return state_->take_for(stream, size_bytes, alignment_bytes);
  }

  /// Takes bytes back once `stream` has passed this point: it may have them again at once, others from then on. Where
  /// the device gives no event, the host waits for the stream; where that fails too, the bytes stay taken for good.
  void deallocate(stream_or_none stream, void* pointer, std::size_t size_bytes,
                  std::size_t /*alignment_bytes*/) const noexcept requires device<Device> {
    if (pointer == nullptr) return;
    const std::scoped_lock hold{state_->lock};
    state_->give_after(stream, pointer, size_bytes);
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
    return state_->map.live_count() - state_->lanes.piece_count();
  }
  [[nodiscard]] std::vector<std::string> notes() const { return state_->from.notes(); }

  friend bool operator==(const pool& a, const pool& b) noexcept { return a.state_ == b.state_; }

 private:
  static constexpr std::size_t granule_bytes = 256;

  struct state {
    state(const Upstream& upstream, const Device& on, const pool_options& options)
        : from{upstream},
          memory{upstream.make_slab()},
          first{reinterpret_cast<std::uintptr_t>(memory.base())},
          capacity_bytes{align_down(memory.size_bytes(), granule_bytes)},
          growth_bytes{align_down((std::max)(options.growth_bytes, granule_bytes), granule_bytes)},
          lanes{on, map} {
      VTIER_ASSERT(first % granule_bytes == 0, "a slab begins at a multiple of 256");
    }
    state(const state&) = delete;
    state& operator=(const state&) = delete;
    ~state() {
      // The resource below takes its memory back at once.
      if constexpr (device<Device>) {
        try {
          for (const auto& e : lanes.last_events()) lanes.on().synchronize(e);
        } catch (...) {  // the device is gone, and its work with it
        }
      }
    }

    // What was asked, in granules.
    struct request {
      std::size_t size_bytes = 0;
      std::size_t alignment_bytes = 0;
      std::uint64_t size = 0;
      std::uint64_t alignment = 0;
    };

    [[nodiscard]] request checked(std::size_t size_bytes, std::size_t alignment_bytes) const {
      const auto rounded = checked_align_up(size_bytes, granule_bytes);
      if (!rounded || *rounded > capacity_bytes) throw refused(size_bytes, alignment_bytes);
      return {size_bytes, alignment_bytes, *rounded / granule_bytes,
              (std::max)(alignment_bytes, granule_bytes) / granule_bytes};
    }

    void* take(std::unique_lock<Lock>& hold, std::size_t size_bytes, std::size_t alignment_bytes) {
      const request r = checked(size_bytes, alignment_bytes);
      std::uint64_t start = take_free(r);
      if constexpr (device<Device>) {
        // Others may be quicker than this thread, each time with something that was waited for.
        for (int attempt = 0; start == detail::block_map::nowhere && attempt < 8; ++attempt) {
          const auto events = lanes.last_events();
          if (events.empty()) break;
          hold.unlock();
          try {
            for (const auto& e : events) lanes.on().synchronize(e);
          } catch (...) {
            hold.lock();
            throw;
          }
          hold.lock();
          start = take_free(r);
        }
      }
      return taken(start, r);
    }

    void* take_for(const stream_or_none& stream, std::size_t size_bytes, std::size_t alignment_bytes) {
      const request r = checked(size_bytes, alignment_bytes);
      std::uint64_t start = lanes.take(stream, r.size, r.alignment);
      if (start == detail::block_map::nowhere) start = take_free(r);
      if (start == detail::block_map::nowhere && lanes.piece_count() > 0) {
        lanes.absorb(stream);
        start = lanes.take(stream, r.size, r.alignment);
      }
      return taken(start, r);
    }

    // A block that nothing uses.
    std::uint64_t take_free(const request& r) {
      std::uint64_t start = map.take(r.size, r.alignment);
      if constexpr (device<Device>) {
        if (start == detail::block_map::nowhere && lanes.piece_count() > 0) {
          lanes.settle();
          start = map.take(r.size, r.alignment);
        }
      }
      if (start != detail::block_map::nowhere) return start;
      const auto wanted = checked_add(r.size * granule_bytes, (r.alignment - 1) * granule_bytes);
      return wanted && grow(*wanted) ? map.take(r.size, r.alignment) : start;
    }

    void* taken(std::uint64_t start, const request& r) {
      if (start == detail::block_map::nowhere) throw refused(r.size_bytes, r.alignment_bytes);
      peak_bytes = (std::max)(peak_bytes, used_bytes());
      return reinterpret_cast<void*>(start * granule_bytes);
    }

    void give(void* pointer, std::size_t size_bytes) noexcept {
      const std::uint64_t start = start_of(pointer);
      std::uint64_t size = 0;
      VTIER_ASSERT(!lanes.holds(start), "a pointer was given back to its pool twice");
      const auto answer = map.give(start, size);
      VTIER_ASSERT(answer != detail::block_map::answer::twice, "a pointer was given back to its pool twice");
      VTIER_ASSERT(answer == detail::block_map::answer::done,
                   "a pointer was given to a pool that does not own it, or twice");
      VTIER_ASSERT(align_up(size_bytes, granule_bytes) == size * granule_bytes,
                   "a pointer was given back to its pool with another size than it was taken with");
    }

    void give_after(const stream_or_none& stream, void* pointer, std::size_t size_bytes) noexcept {
      const std::uint64_t start = start_of(pointer);
      VTIER_ASSERT(!lanes.holds(start), "a pointer was given back to its pool twice");
      const std::uint64_t size = map.live_size(start);
      VTIER_ASSERT(size > 0, "a pointer was given to a pool that does not own it, or twice");
      VTIER_ASSERT(align_up(size_bytes, granule_bytes) == size * granule_bytes,
                   "a pointer was given back to its pool with another size than it was taken with");
      try {
        lanes.put(stream, start, size);
        return;
      } catch (...) {
      }
      try {
        lanes.on().synchronize(stream);
        give(pointer, size_bytes);
      } catch (...) {  // nobody can say when its uses are over
      }
    }

    [[nodiscard]] static std::uint64_t start_of(void* pointer) noexcept {
      const auto address = reinterpret_cast<std::uintptr_t>(pointer);
      return address % granule_bytes == 0 ? address / granule_bytes : detail::block_map::nowhere;
    }

    // Makes a free block of `wanted_bytes` exist at the end; false where the address range ends before that.
    bool grow(std::size_t wanted_bytes) {
      const std::size_t rest_bytes = map.free_at_end() * granule_bytes;
      const auto end_bytes = checked_add(committed_bytes - rest_bytes, wanted_bytes);
      if (!end_bytes || *end_bytes > capacity_bytes) return false;
      const auto stepped_bytes = checked_add(*end_bytes, growth_bytes - 1 - (*end_bytes - 1) % growth_bytes);
      std::size_t target_bytes = (std::min)(stepped_bytes.value_or(capacity_bytes), capacity_bytes);
      try {
        memory.commit(target_bytes);
      } catch (const out_of_memory&) {  // a whole step is not there; what was asked may be
        if (target_bytes == *end_bytes) throw;
        target_bytes = *end_bytes;
        memory.commit(target_bytes);
      }
      map.extend((first + committed_bytes) / granule_bytes, (target_bytes - committed_bytes) / granule_bytes);
      committed_bytes = target_bytes;
      return true;
    }

    [[nodiscard]] std::size_t used_bytes() const noexcept { return (map.used() - lanes.waiting()) * granule_bytes; }
    [[nodiscard]] std::size_t free_bytes() const noexcept { return capacity_bytes - used_bytes(); }

    [[nodiscard]] out_of_memory refused(std::size_t size_bytes, std::size_t alignment_bytes) const {
      const std::size_t at_end_bytes = capacity_bytes - committed_bytes + map.free_at_end() * granule_bytes;
      const std::size_t largest_bytes = (std::max)(map.largest_free() * granule_bytes, at_end_bytes);
      const std::string& name = memory.properties().name;
      std::string text = name + ": asked " + format_bytes(size_bytes);
      if (alignment_bytes > granule_bytes) text += " at a multiple of " + format_bytes(alignment_bytes);
      text += ", free " + format_bytes(free_bytes()) + ", of these " + format_bytes(largest_bytes) + " in one piece";
      if (lanes.waiting() > 0)
        text += " and " + format_bytes(lanes.waiting() * granule_bytes) + " still used by streams";
      text += ": free something or raise the budget";
      return {name, size_bytes, free_bytes(), text};
    }

    Lock lock;
    Upstream from;
    slab memory;
    const std::uintptr_t first;
    const std::size_t capacity_bytes;
    const std::size_t growth_bytes;
    detail::block_map map;
    detail::lanes_of<Device> lanes;
    std::size_t committed_bytes = 0;
    std::size_t peak_bytes = 0;
  };

  std::shared_ptr<state> state_;
};

template <resource Upstream>
pool(Upstream) -> pool<Upstream>;
template <resource Upstream>
pool(Upstream, pool_options) -> pool<Upstream>;
template <resource Upstream, device Device>
pool(Upstream, Device) -> pool<Upstream, std::mutex, Device>;
template <resource Upstream, device Device>
pool(Upstream, Device, pool_options) -> pool<Upstream, std::mutex, Device>;

}  // namespace vtier
