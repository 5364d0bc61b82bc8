// SPDX-License-Identifier: Apache-2.0
#pragma once

// Who wrote past the end: known bytes around every allocation, looked at when it comes back.
//
// For memory that host code may touch only: what it does is in the bytes. For device memory `tracked` finds second
// frees, foreign pointers and wrong sizes.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/memory/detail/adaptor.hpp>
#include <vtier/memory/resource.hpp>

namespace vtier {

/// How a `guarded` resource marks its bytes.
struct guarded_options {
  std::size_t guard_bytes = 64;            // before and after each allocation; before it at least its alignment
  std::byte fresh_byte = std::byte{0xCD};  // what new memory holds: a use before the first write shows
  std::byte freed_byte = std::byte{0xDD};  // what memory holds that was given back: a use after that shows
  std::byte guard_byte = std::byte{0xFD};
};

namespace detail {

template <host_resource Upstream>
struct guarded_state {
  struct record {
    std::size_t size_bytes = 0;
    std::size_t alignment_bytes = 0;
  };
  guarded_state(Upstream from, const guarded_options& o) : upstream{std::move(from)}, options{o} {}
  Upstream upstream;
  guarded_options options;
  std::mutex lock;
  std::map<void*, record> live;
};

}  // namespace detail

/// A resource whose allocations stand between guards.
///
/// Units   bytes; the guards are charged to the resource below
/// Gives   a resource; memory filled with fresh_byte, and with freed_byte before it is returned. A slab has no guards
/// Errors  out_of_memory that names what was asked, without the guards; guards that were written over, another size or
///         alignment than was asked, a second free and a foreign pointer are asserted against
/// Threads any, where the resource below allows it
/// Cost    every byte is written twice, one lock and one node of a map: for debugging
template <host_resource Upstream>
class guarded : public detail::adaptor<guarded<Upstream>, Upstream, detail::guarded_state<Upstream>> {
  using state_type = detail::guarded_state<Upstream>;
  using base = detail::adaptor<guarded<Upstream>, Upstream, state_type>;

 public:
  explicit guarded(Upstream upstream, const guarded_options& options = {})
      : base{std::make_shared<state_type>(std::move(upstream), options)} {}

 private:
  friend base;

  [[nodiscard]] std::size_t front_bytes(std::size_t alignment_bytes) const noexcept {
    return align_up(this->state().options.guard_bytes, alignment_bytes);
  }
  [[nodiscard]] std::optional<std::size_t> whole_bytes(std::size_t size_bytes,
                                                       std::size_t alignment_bytes) const noexcept {
    const std::size_t guard = this->state().options.guard_bytes;
    const auto front = checked_align_up(guard, alignment_bytes);
    const auto end = front ? checked_add(*front, size_bytes) : std::nullopt;
    return end ? checked_add(*end, guard) : std::nullopt;
  }

  template <class Order>
  [[nodiscard]] void* give(std::size_t size_bytes, std::size_t alignment_bytes, const Order& order) const {
    const auto whole = whole_bytes(size_bytes, alignment_bytes);
    if (!whole) throw refused(size_bytes, "more than 64 bits can count");
    std::byte* first = nullptr;
    try {
      first = static_cast<std::byte*>(order.allocate(*whole, alignment_bytes));
    } catch (const out_of_memory& e) {
      throw refused(size_bytes, format_bytes(*whole) + "; " + e.what());
    }
    state_type& s = this->state();
    std::byte* const pointer = first + front_bytes(alignment_bytes);
    try {
      const std::scoped_lock hold{s.lock};
      s.live.insert_or_assign(pointer, typename state_type::record{size_bytes, alignment_bytes});
    } catch (...) {
      order.deallocate(first, *whole, alignment_bytes);
      throw;
    }
    fill(first, pointer, s.options.guard_byte);
    fill(pointer, pointer + size_bytes, s.options.fresh_byte);
    fill(pointer + size_bytes, first + *whole, s.options.guard_byte);
    return pointer;
  }

  template <class Order>
  void take_back(void* given, std::size_t size_bytes, std::size_t alignment_bytes, const Order& order) const noexcept {
    state_type& s = this->state();
    {
      const std::scoped_lock hold{s.lock};
      const auto at = s.live.find(given);
      VTIER_ASSERT(at != s.live.end(), "a pointer was given to a guarded resource that does not own it, or twice");
      VTIER_ASSERT(at->second.size_bytes == size_bytes, "a guarded allocation came back with another size");
      VTIER_ASSERT(at->second.alignment_bytes == alignment_bytes,
                   "a guarded allocation came back with another alignment");
      s.live.erase(at);
    }
    const std::size_t whole = *whole_bytes(size_bytes, alignment_bytes);  // it was given: it fits
    auto* const pointer = static_cast<std::byte*>(given);
    std::byte* const first = pointer - front_bytes(alignment_bytes);
    const auto is_guard = [&](std::byte b) { return b == s.options.guard_byte; };
    VTIER_ASSERT(std::all_of(first, pointer, is_guard), "bytes before a guarded allocation were written over");
    VTIER_ASSERT(std::all_of(pointer + size_bytes, first + whole, is_guard),
                 "bytes behind a guarded allocation were written over");
    fill(first, first + whole, s.options.freed_byte);
    order.deallocate(first, whole, alignment_bytes);
  }

  static void fill(std::byte* first, std::byte* end, std::byte value) noexcept {
    std::memset(first, std::to_integer<int>(value), static_cast<std::size_t>(end - first));
  }

  [[nodiscard]] out_of_memory refused(std::size_t size_bytes, const std::string& why) const {
    const std::size_t free = this->free_bytes();
    return {this->name(), size_bytes, free,
            this->name() + ": asked " + format_bytes(size_bytes) + ", free " + format_bytes(free) +
                "; with its guards that is " + why};
  }
};

}  // namespace vtier
