// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a kind of memory is to vtier: something with a budget that gives bytes, one by one or all at once.
//
// The concept is the seam below pools, allocators and tiers; `hbm`, `pinned`, `numa`, `mapped_file` and `pool` are its
// models. Nothing above this room knows which of them it holds.

#include <concepts>
#include <cstddef>
#include <string>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/memory/slab.hpp>

namespace vtier {

/// Memory with a hard budget.
///
/// Needs   a cheap copyable handle over shared state: copies are the same memory and compare equal
/// Gives   allocate(bytes, alignment): bytes at that alignment, null for zero bytes; deallocate takes the same numbers
///         back. make_slab(): all that is left of the budget as one address range, for whoever places things in it
///         itself. notes(): what the resource does without on this machine.
/// Errors  out_of_memory that names the resource, what was asked and what is free; usage_error for an alignment that is
///         not a power of two or larger than the resource can give; io_error from file-backed memory
/// Threads any
template <class R>
concept resource = std::copyable<R> && std::equality_comparable<R> &&
    requires(const R& r, void* p, std::size_t size_bytes, std::size_t alignment_bytes) {
  { R::kind } -> std::convertible_to<memory_kind>;
  { r.allocate(size_bytes, alignment_bytes) } -> std::same_as<void*>;
  { r.deallocate(p, size_bytes, alignment_bytes) }
  noexcept->std::same_as<void>;
  { r.make_slab() } -> std::same_as<slab>;
  { r.name() } -> std::convertible_to<std::string>;
  { r.free_bytes() } -> std::same_as<std::size_t>;
  { r.notes() } -> std::same_as<std::vector<std::string>>;
};

/// A resource whose bytes ordinary host code may touch.
template <class R>
concept host_resource = resource<R> &&(R::kind != memory_kind::device);

}  // namespace vtier
