// SPDX-License-Identifier: Apache-2.0
#pragma once

// Many allocations out of few: a resource over a resource.
//
// The upstream resource is asked once, for all of its budget, or now and then, for a chunk; an allocation is
// bookkeeping, and what was freed in pieces joins again up to the whole. The pool never touches the memory it hands
// out, so it serves device memory as well.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/device/device.hpp>
#include <vtier/memory/detail/adaptive_mutex.hpp>
#include <vtier/memory/detail/alignment.hpp>
#include <vtier/memory/detail/block_map.hpp>
#include <vtier/memory/detail/poison.hpp>
#include <vtier/memory/detail/pool_blocks.hpp>
#include <vtier/memory/detail/pool_device.hpp>
#include <vtier/memory/detail/pool_memory.hpp>
#include <vtier/memory/resource.hpp>
#include <vtier/memory/slab.hpp>

namespace vtier {

/// The lock of a pool that one thread uses: none.
struct no_lock {
  void lock() noexcept {}
  void unlock() noexcept {}
};

/// Limits of a pool.
///
/// Units   bytes
struct pool_options {
  /// Memory is made to exist in steps of this, where the upstream makes it exist piece by piece.
  std::size_t growth_bytes = 2_MiB;
  /// Where this is not 0, memory comes in allocations of this size, or of a request's where that is more, and goes back
  /// by them: the upstream's budget stays open to others. 0: one allocation of all that is left, which grows where it
  /// stands if the upstream can do that; a device that cannot is asked for chunks of a 256th of its budget, of 2 MiB at
  /// least.
  std::size_t chunk_bytes = 0;
};

/// A sub-allocator over a resource.
///
/// Units   bytes; every allocation is rounded up to a multiple of 256
/// Needs   what is left of the resource's budget, or in chunks a part of it. `Lock` is a mutex type, or no_lock where
///         one thread at a time uses the pool. `Device` is the one whose streams the pool follows: that of the
///         resource where it is on one, or one that is given, for pinned memory that its copies use
/// Gives   a resource; alignments up to 2 MiB and beyond, as far as the address range goes; the same calls give the
///         same places. A block of up to 1 MiB that comes back is kept for the next one of its size, which may be a
///         16th smaller; longer ones merge with their neighbours at once, and so do all before memory grows. What is
///         idle stays with the pool until trim(), or until something cannot be had without it
/// Errors  out_of_memory that says whether the free bytes are in pieces; a foreign pointer or a second free is
///         asserted against
/// Threads any, with a real lock
/// Cost    some 100 KiB of host memory where it is empty. O(1): a few steps in tables of some 40 bytes for each
///         block; sometimes they double, and where only a free block of the request's own size class (a 32nd of a
///         power of two) can hold it, that class is searched. With a stream: an event for each free, O(log(pieces
///         that wait))
template <resource Upstream, class Lock = detail::adaptive_mutex,
          class Device = typename detail::device_under<Upstream>::type>
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
    state& s = *state_;
    std::unique_lock hold{s.lock};
    const std::uint64_t start = s.take(size_bytes, alignment_bytes);
    if (start == detail::block_map::nowhere) [[unlikely]]
      return s.take_slowly(hold, size_bytes, alignment_bytes);
    return s.taken(start, size_bytes);
  }

  /// Takes bytes back at once: nothing uses them any more.
  void deallocate(void* pointer, std::size_t size_bytes, std::size_t /*alignment_bytes*/) const noexcept {
    if (pointer == nullptr) return;
    const std::scoped_lock hold{state_->lock};
    state_->give(pointer, size_bytes);
  }

  /// Gives bytes for work enqueued on `stream` from now on. What the stream itself gave back comes first, then what
  /// nothing uses; where there is neither, the stream waits for others. The host does not block, but where memory has
  /// to move from one range to another before the request is refused.
  [[nodiscard]] void* allocate(stream_or_none stream, std::size_t size_bytes,
                               std::size_t alignment_bytes) const requires device<Device> {
    detail::check_alignment(name(), alignment_bytes);
    if (size_bytes == 0) return nullptr;
    std::unique_lock hold{state_->lock};
    return state_->take_for(hold, stream, size_bytes, alignment_bytes);
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

  /// Gives memory that no block is in back to the resource below, as far as that takes it; tells how much.
  ///
  /// Errors  device_error from asking whether events have passed
  /// Cost    that of the resource below; O(ranges or chunks)
  std::size_t trim() const {
    const std::scoped_lock hold{state_->lock};
    if constexpr (device<Device>) state_->lanes.settle();
    return state_->memory.trim();
  }

  [[nodiscard]] const std::string& name() const noexcept { return state_->name; }
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
    return state_->peak_granules * granule_bytes;
  }
  /// How much memory exists by now: what fragmentation is measured by, against peak_bytes().
  [[nodiscard]] std::size_t reserved_bytes() const {
    const std::scoped_lock hold{state_->lock};
    return state_->memory.reserved_bytes();
  }
  /// The most that existed at a time.
  [[nodiscard]] std::size_t reserved_peak_bytes() const {
    const std::scoped_lock hold{state_->lock};
    return state_->memory.reserved_peak_bytes();
  }
  /// How many allocations are live.
  [[nodiscard]] std::size_t live_count() const {
    const std::scoped_lock hold{state_->lock};
    return state_->map.live_count() - state_->lanes.piece_count();
  }
  [[nodiscard]] std::vector<std::string> notes() const { return state_->memory.from().notes(); }

  friend bool operator==(const pool& a, const pool& b) noexcept { return a.state_ == b.state_; }

 private:
  static constexpr std::size_t granule_bytes = detail::pool_memory<Upstream>::granule_bytes;

  struct state {
    state(const Upstream& upstream, const Device& on, const pool_options& options)
        : name{upstream.name()}, memory{upstream, map, options.growth_bytes, options.chunk_bytes}, lanes{on, map} {}
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

    static std::uint64_t granules(std::size_t size_bytes) noexcept {
      return size_bytes / granule_bytes + (size_bytes % granule_bytes != 0 ? 1 : 0);
    }
    static std::uint64_t alignment_granules(std::size_t alignment_bytes) noexcept {
      return alignment_bytes <= granule_bytes ? 1 : alignment_bytes / granule_bytes;
    }

    // A free block.
    std::uint64_t take(std::size_t size_bytes, std::size_t alignment_bytes) {
      return map.take(granules(size_bytes), alignment_granules(alignment_bytes));
    }

    // A block that nothing uses, if memory must be made for it; `why` gets what the resource below says against that.
    std::uint64_t take_new(std::size_t size_bytes, std::size_t alignment_bytes, std::string& why) {
      if constexpr (device<Device>) {
        if (lanes.piece_count() > 0) {
          lanes.settle();
          if (const std::uint64_t start = take(size_bytes, alignment_bytes); start != detail::block_map::nowhere)
            return start;
        }
      }
      const std::size_t slack_bytes = (alignment_granules(alignment_bytes) - 1) * granule_bytes;
      const auto wanted = checked_add(size_bytes, slack_bytes);
      if (!wanted) return detail::block_map::nowhere;
      const std::uint64_t size = granules(size_bytes);
      detail::block_map& own = map.map_for(size);
      try {
        if (memory.grow(own, *wanted)) return own.take(size, alignment_granules(alignment_bytes));
      } catch (const out_of_memory& e) {
        why = e.what();
      }
      // What is for blocks of other sizes, before anything is refused.
      detail::block_map* const other = map.other(own);
      return other == nullptr ? detail::block_map::nowhere : other->take(size, alignment_granules(alignment_bytes));
    }

    void* take_slowly(std::unique_lock<Lock>& hold, std::size_t size_bytes, std::size_t alignment_bytes) {
      if (size_bytes > memory.capacity_bytes()) throw refused(size_bytes, alignment_bytes, {});
      std::string why;
      std::uint64_t start = take_new(size_bytes, alignment_bytes, why);
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
          start = take(size_bytes, alignment_bytes);
          if (start == detail::block_map::nowhere) start = take_new(size_bytes, alignment_bytes, why);
        }
      }
      if (start == detail::block_map::nowhere) throw refused(size_bytes, alignment_bytes, why);
      return taken(start, size_bytes);
    }

    void* take_for(std::unique_lock<Lock>& hold, const stream_or_none& stream, std::size_t size_bytes,
                   std::size_t alignment_bytes) {
      const std::uint64_t size = granules(size_bytes);
      const std::uint64_t alignment = alignment_granules(alignment_bytes);
      std::uint64_t start = lanes.take(stream, size, alignment);
      if (start == detail::block_map::nowhere) start = map.take(size, alignment);
      std::string why;
      if (start == detail::block_map::nowhere) start = take_new(size_bytes, alignment_bytes, why);
      if (start == detail::block_map::nowhere && lanes.piece_count() > 0 && size_bytes <= memory.capacity_bytes()) {
        lanes.absorb(stream);
        start = lanes.take(stream, size, alignment);
      }
      if (start == detail::block_map::nowhere) return take_slowly(hold, size_bytes, alignment_bytes);
      return taken(start, size_bytes);
    }

    void* taken(std::uint64_t start, std::size_t size_bytes) noexcept {
      peak_granules = (std::max)(peak_granules, map.used() - lanes.waiting());
      if constexpr (detail::poisons<Upstream::kind>) detail::unpoison(start * granule_bytes, size_bytes);
      return reinterpret_cast<void*>(start * granule_bytes);
    }

    void give(void* pointer, std::size_t size_bytes) noexcept {
      const std::uint64_t start = start_of(pointer);
      VTIER_ASSERT(!lanes.holds(start), "a pointer was given back to its pool twice");
      std::uint64_t size = 0;
      const auto answer = map.give(start, size);
      VTIER_ASSERT(answer != detail::block_map::answer::twice, "a pointer was given back to its pool twice");
      VTIER_ASSERT(answer == detail::block_map::answer::done,
                   "a pointer was given to a pool that does not own it, or twice");
      VTIER_ASSERT(granules(size_bytes) == size,
                   "a pointer was given back to its pool with another size than it was taken with");
      if constexpr (detail::poisons<Upstream::kind>) detail::poison(start * granule_bytes, size * granule_bytes);
    }

    void give_after(const stream_or_none& stream, void* pointer, std::size_t size_bytes) noexcept {
      const std::uint64_t start = start_of(pointer);
      VTIER_ASSERT(!lanes.holds(start), "a pointer was given back to its pool twice");
      const std::uint64_t size = map.live_size(start);
      VTIER_ASSERT(size > 0, "a pointer was given to a pool that does not own it, or twice");
      VTIER_ASSERT(granules(size_bytes) == size,
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

    [[nodiscard]] std::size_t used_bytes() const noexcept { return (map.used() - lanes.waiting()) * granule_bytes; }
    [[nodiscard]] std::size_t free_bytes() const { return memory.capacity_bytes() - used_bytes(); }

    [[nodiscard]] out_of_memory refused(std::size_t size_bytes, std::size_t alignment_bytes, const std::string& why) {
      map.settle();
      const std::size_t largest_bytes =
          (std::max)(std::size_t{map.largest_free()} * granule_bytes, memory.growth_bytes_max());
      std::string text = name + ": asked " + format_bytes(size_bytes);
      if (alignment_bytes > granule_bytes) text += " at a multiple of " + format_bytes(alignment_bytes);
      text += ", free " + format_bytes(free_bytes()) + ", of these " + format_bytes(largest_bytes) + " in one piece";
      if (lanes.waiting() > 0)
        text += " and " + format_bytes(lanes.waiting() * granule_bytes) + " still used by streams";
      text += why.empty() ? ": free something or raise the budget" : " (" + why + ")";
      return {name, size_bytes, free_bytes(), text};
    }

    Lock lock;
    const std::string name;
    detail::pool_blocks map;
    detail::pool_memory<Upstream> memory;
    detail::lanes_of<Device> lanes;
    std::uint64_t peak_granules = 0;
  };

  std::shared_ptr<state> state_;
};

template <resource Upstream>
pool(Upstream) -> pool<Upstream>;
template <resource Upstream>
pool(Upstream, pool_options) -> pool<Upstream>;
template <resource Upstream, device Device>
pool(Upstream, Device) -> pool<Upstream, detail::adaptive_mutex, Device>;
template <resource Upstream, device Device>
pool(Upstream, Device, pool_options) -> pool<Upstream, detail::adaptive_mutex, Device>;

}  // namespace vtier
