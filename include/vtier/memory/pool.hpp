// SPDX-License-Identifier: Apache-2.0
#pragma once

// Many allocations out of one slab: a resource over a resource.
//
// The upstream resource is asked once, for all of its budget; after that an allocation is bookkeeping. The pool never
// touches the memory it hands out, so it serves device memory as well.

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/memory/detail/alignment.hpp>
#include <vtier/memory/ranges.hpp>
#include <vtier/memory/resource.hpp>
#include <vtier/memory/slab.hpp>

namespace vtier {

/// A sub-allocator over the whole budget of a resource.
///
/// Units   bytes; every allocation is rounded up to a multiple of 256
/// Needs   a resource of its own: the pool takes what is left of its budget
/// Gives   a resource; alignments up to the upstream's page (host, file) or 256 (device)
/// Errors  out_of_memory that says whether the free bytes are in pieces; a foreign pointer or a second free is asserted
///         against
/// Threads any
/// Cost    O(free pieces) for each allocation
template <resource Upstream>
class pool {
 public:
  static constexpr memory_kind kind = Upstream::kind;

  explicit pool(const Upstream& from) : state_{std::make_shared<state>(from)} {}

  [[nodiscard]] void* allocate(std::size_t size_bytes, std::size_t alignment_bytes) const {
    detail::check_alignment(name(), alignment_bytes);
    if (size_bytes == 0) return nullptr;
    const std::scoped_lock hold{state_->lock};
    // Ranges start at multiples of the granule; a larger alignment takes enough to move the start up.
    const std::size_t slack = alignment_bytes > granule_bytes ? alignment_bytes - granule_bytes : 0;
    const auto wanted = checked_add(size_bytes, slack);
    auto taken = wanted ? state_->map.take(*wanted, [](const no_event&) { return true; }) : std::nullopt;
    if (!taken) throw refused(size_bytes);
    try {
      commit(taken->offset_bytes + taken->size_bytes);
      std::byte* const first = state_->memory.base();
      const std::size_t start = align_up(reinterpret_cast<std::size_t>(first) + taken->offset_bytes, alignment_bytes) -
                                reinterpret_cast<std::size_t>(first);
      state_->live.emplace(start, std::pair{taken->offset_bytes, taken->size_bytes});
      return first + start;
    } catch (...) {
      state_->map.give_back(taken->offset_bytes, taken->size_bytes, {});
      throw;
    }
  }

  void deallocate(void* pointer, std::size_t /*size_bytes*/, std::size_t /*alignment_bytes*/) const noexcept {
    if (pointer == nullptr) return;
    const std::scoped_lock hold{state_->lock};
    const auto start = static_cast<std::size_t>(static_cast<std::byte*>(pointer) - state_->memory.base());
    const auto at = state_->live.find(start);
    VTIER_ASSERT(at != state_->live.end(), "a pointer was given to a pool that does not own it, or twice");
    state_->map.give_back(at->second.first, at->second.second, {});
    state_->live.erase(at);
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
    return state_->map.free_bytes();
  }
  [[nodiscard]] std::size_t used_bytes() const {
    const std::scoped_lock hold{state_->lock};
    return state_->map.used_bytes();
  }
  [[nodiscard]] std::size_t peak_bytes() const {
    const std::scoped_lock hold{state_->lock};
    return state_->map.peak_bytes();
  }
  [[nodiscard]] std::vector<std::string> notes() const { return state_->from.notes(); }

  friend bool operator==(const pool& a, const pool& b) noexcept { return a.state_ == b.state_; }

 private:
  static constexpr std::size_t granule_bytes = 256;
  struct no_event {};

  struct state {
    explicit state(const Upstream& upstream)
        : from{upstream}, memory{upstream.make_slab()}, map{memory.size_bytes(), granule_bytes} {}
    std::mutex lock;
    Upstream from;
    slab memory;
    ranges<no_event> map;
    std::map<std::size_t, std::pair<std::size_t, std::size_t>> live;  // start: the range behind it
    std::size_t committed_bytes = 0;
  };

  void commit(std::size_t end_bytes) const {
    if (end_bytes <= state_->committed_bytes) return;
    state_->memory.commit(end_bytes);
    state_->committed_bytes = end_bytes;
  }

  out_of_memory refused(std::size_t size_bytes) const {
    const std::size_t free = state_->map.free_bytes();
    return {name(), size_bytes, free,
            name() + ": asked " + format_bytes(size_bytes) + ", free " + format_bytes(free) + ", of these " +
                format_bytes(state_->map.largest_free_bytes()) + " in one piece: free something or raise the budget"};
  }

  std::shared_ptr<state> state_;
};

}  // namespace vtier
