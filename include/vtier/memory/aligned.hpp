// SPDX-License-Identifier: Apache-2.0
#pragma once

// A minimum alignment for every allocation, whatever its type asks: pages for direct I/O, 2 MiB for huge pages, a cache
// line against false sharing.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/memory/detail/adaptor.hpp>
#include <vtier/memory/detail/alignment.hpp>
#include <vtier/memory/resource.hpp>
#include <vtier/memory/slab.hpp>

namespace vtier {

/// What an `aligned` resource asks of the one below.
struct aligned_options {
  std::size_t alignment_bytes = 4096;  // at least, a power of two
  bool round_size = false;             // sizes too, up to a multiple: for direct I/O, which reads whole blocks
};

namespace detail {

template <resource Upstream>
struct aligned_state {
  aligned_state(Upstream from, const aligned_options& o) : upstream{std::move(from)}, options{o} {
    check_alignment(upstream.name(), options.alignment_bytes);
  }
  Upstream upstream;
  aligned_options options;
};

}  // namespace detail

/// A resource whose addresses, and on request sizes, are multiples of a power of two.
///
/// Needs   a resource below that can give the alignment; where rounded sizes are used, that is known to those who use
///         the bytes behind the size that they asked
/// Errors  usage_error from the constructor for an alignment that is not a power of two, and from every allocation
///         where the resource below cannot give it; out_of_memory that names what was asked, also where it leaves 64
///         bits when rounded
/// Threads as the resource below
/// Cost    none but the bytes
template <resource Upstream>
class aligned : public detail::adaptor<aligned<Upstream>, Upstream, detail::aligned_state<Upstream>> {
  using base = detail::adaptor<aligned<Upstream>, Upstream, detail::aligned_state<Upstream>>;

 public:
  aligned(Upstream upstream, const aligned_options& options)
      : base{std::make_shared<detail::aligned_state<Upstream>>(std::move(upstream), options)} {}

  /// Gives the slab of the resource below, where it begins at the alignment.
  ///
  /// Errors  usage_error where it does not
  [[nodiscard]] slab make_slab() const {
    slab made = this->upstream().make_slab();
    // A slab of files is not mapped to look: a mapping begins at a page.
    const bool fits = made.kind() == memory_kind::file
                          ? alignment_bytes() <= 4096
                          : reinterpret_cast<std::uintptr_t>(made.base()) % alignment_bytes() == 0;
    if (!fits) {
      throw usage_error(this->name() + ": its slab does not begin at a multiple of " + format_bytes(alignment_bytes()));
    }
    return made;
  }

  /// The least alignment of what it gives.
  [[nodiscard]] std::size_t alignment_bytes() const noexcept { return this->state().options.alignment_bytes; }

 private:
  friend base;

  [[nodiscard]] std::size_t alignment(std::size_t asked_bytes) const noexcept {
    return (std::max)(asked_bytes, alignment_bytes());
  }

  template <class Order>
  [[nodiscard]] void* give(std::size_t size_bytes, std::size_t asked_alignment_bytes, const Order& order) const {
    if (!this->state().options.round_size) return order.allocate(size_bytes, alignment(asked_alignment_bytes));
    const auto rounded = checked_align_up(size_bytes, alignment_bytes());
    if (!rounded) throw refused(size_bytes, "more than 64 bits can count");
    try {
      return order.allocate(*rounded, alignment(asked_alignment_bytes));
    } catch (const out_of_memory& e) {
      if (*rounded == size_bytes) throw;
      throw refused(size_bytes, format_bytes(*rounded) + "; " + e.what());
    }
  }

  template <class Order>
  void take_back(void* pointer, std::size_t size_bytes, std::size_t asked_alignment_bytes,
                 const Order& order) const noexcept {
    // It was given, so that rounding it does not leave 64 bits.
    const std::size_t given = this->state().options.round_size ? align_up(size_bytes, alignment_bytes()) : size_bytes;
    order.deallocate(pointer, given, alignment(asked_alignment_bytes));
  }

  [[nodiscard]] out_of_memory refused(std::size_t size_bytes, const std::string& why) const {
    const std::size_t free = this->free_bytes();
    return {this->name(), size_bytes, free,
            this->name() + ": asked " + format_bytes(size_bytes) + ", free " + format_bytes(free) +
                "; rounded up to multiples of " + format_bytes(alignment_bytes()) + " that is " + why};
  }
};

}  // namespace vtier
