// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a kind of memory is to vtier: something with a budget that gives bytes, one by one or all at once.
//
// The concept is the seam below pools, allocators and tiers; `hbm`, `pinned`, `numa`, `mapped_file` and `pool` are its
// models, and so are the adaptors that put one thing more around any of them (`limited`, `tracked`, `logged`, ...).
// Nothing above this room knows which of them it holds.

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

/// A resource that also gives and takes bytes in the order of a stream's work.
///
/// Needs   `stream_ref`, the name of a stream, copied by value
/// Gives   allocate(stream, bytes, alignment): bytes for work enqueued on the stream from now on, the host does not
///         wait if it can; deallocate(stream, pointer, bytes, alignment): takes them back once the stream has passed
///         this point
/// Errors  as the calls without a stream
/// Threads any
template <class R>
concept stream_ordered_resource = resource<R> &&
    requires(const R& r, typename R::stream_ref s, void* p, std::size_t size_bytes, std::size_t alignment_bytes) {
  { r.allocate(s, size_bytes, alignment_bytes) } -> std::same_as<void*>;
  { r.deallocate(s, p, size_bytes, alignment_bytes) }
  noexcept->std::same_as<void>;
};

/// A resource whose bytes ordinary host code may touch.
template <class R>
concept host_resource = resource<R> &&(R::kind != memory_kind::device);

}  // namespace vtier
