// SPDX-License-Identifier: Apache-2.0
#pragma once

// A resource for the libraries of CUDA that take a cuda::mr: RMM, cuDF, CCCL's containers.
//
// Not in tier.hpp: <cuda/memory_resource> costs a second of compile time. CCCL renamed its members with 3.1 and gave
// the old names other meanings, so that the names before and after are in two classes and only one of them is there.

#if !__has_include(<cuda/memory_resource>)
#error "vtier/memory/cuda_mr.hpp needs CCCL: add the toolkit's include/cccl to the include directories"
#endif
#include <cuda/std/__cccl/version.h>
#if CCCL_VERSION < 3001000 && !defined(LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE)
#error \
    "CCCL before 3.1 has cuda::mr only with LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE defined for the whole \
program, before any CCCL header: link vtier::cuda, which defines it, or pass -D"
#endif

#include <cuda/memory_resource>
#include <cuda/stream_ref>

#include <concepts>
#include <cstddef>
#include <utility>

#include <vtier/core/config.hpp>
#include <vtier/memory/resource.hpp>

namespace vtier {

namespace detail {

/// The alignment where nobody says one: what the CUDA runtime gives. CCCL's own default is that of a C++ type.
inline constexpr std::size_t cuda_alignment_bytes = 256;

/// Whether work of a stream of CUDA's can be given to the streams of a resource.
template <class R>
concept takes_cuda_streams = stream_ordered_resource<R> &&
    std::constructible_from<typename R::stream_ref, decltype(std::declval<::cuda::stream_ref>().get())>;

/// The names of CCCL from 3.1 on.
template <resource R>
class cuda_mr_members {
 public:
  explicit cuda_mr_members(R from) : from_{std::move(from)} {}

  [[nodiscard]] void* allocate_sync(std::size_t size_bytes, std::size_t alignment_bytes = cuda_alignment_bytes) {
    return from_.allocate(size_bytes, alignment_bytes);
  }
  void deallocate_sync(void* pointer, std::size_t size_bytes,
                       std::size_t alignment_bytes = cuda_alignment_bytes) noexcept {
    from_.deallocate(pointer, size_bytes, alignment_bytes);
  }

#if CCCL_VERSION >= 3001000
  [[nodiscard]] void* allocate(::cuda::stream_ref stream, std::size_t size_bytes,
                               std::size_t alignment_bytes = cuda_alignment_bytes) requires takes_cuda_streams<R> {
    return from_.allocate(typename R::stream_ref(stream.get()), size_bytes, alignment_bytes);
  }
  void deallocate(::cuda::stream_ref stream, void* pointer, std::size_t size_bytes,
                  std::size_t alignment_bytes = cuda_alignment_bytes) noexcept requires takes_cuda_streams<R> {
    from_.deallocate(typename R::stream_ref(stream.get()), pointer, size_bytes, alignment_bytes);
  }
#endif

  /// The resource that the memory comes from.
  [[nodiscard]] const R& from() const noexcept { return from_; }

 protected:
  R from_;
};

#if CCCL_VERSION < 3001000
/// The names of CCCL before 3.1. Apart from the new ones: beside them allocate(stream, bytes) with a stream of 0 would
/// be taken for allocate(bytes, alignment).
template <resource R>
class cuda_mr_bridge : public cuda_mr_members<R> {
 public:
  using cuda_mr_members<R>::cuda_mr_members;

  [[nodiscard]] void* allocate(std::size_t size_bytes, std::size_t alignment_bytes = cuda_alignment_bytes) {
    return this->from_.allocate(size_bytes, alignment_bytes);
  }
  void deallocate(void* pointer, std::size_t size_bytes, std::size_t alignment_bytes = cuda_alignment_bytes) noexcept {
    this->from_.deallocate(pointer, size_bytes, alignment_bytes);
  }
  [[nodiscard]] void* allocate_async(std::size_t size_bytes, std::size_t alignment_bytes,
                                     ::cuda::stream_ref stream) requires takes_cuda_streams<R> {
    return this->from_.allocate(typename R::stream_ref(stream.get()), size_bytes, alignment_bytes);
  }
  void deallocate_async(void* pointer, std::size_t size_bytes, std::size_t alignment_bytes,
                        ::cuda::stream_ref stream) noexcept requires takes_cuda_streams<R> {
    this->from_.deallocate(typename R::stream_ref(stream.get()), pointer, size_bytes, alignment_bytes);
  }
};
template <resource R>
using cuda_mr_base = cuda_mr_bridge<R>;
#else
template <resource R>
using cuda_mr_base = cuda_mr_members<R>;
#endif

}  // namespace detail

/// A resource as a model of CCCL's cuda::mr: of its blocking concept always, of its stream-ordered one where the
/// resource has streams of CUDA's.
///
/// Needs   CCCL 3.0 or later; before 3.1 the macro LIBCUDACXX_ENABLE_EXPERIMENTAL_MEMORY_RESOURCE
/// Gives   a cheap copyable handle that keeps the resource alive and compares as it does. Device memory is
///         device_accessible, other memory host_accessible: page-locked memory does not claim the former, as not every
///         machine locks it. 256 bytes of alignment where none is said; null for zero bytes
/// Errors  out_of_memory, which is a std::bad_alloc, where CCCL's own resources throw cuda_error
/// Threads as the resource
/// Source  CCCL, libcudacxx, cuda/__memory_resource
template <resource R>
class cuda_mr : public detail::cuda_mr_base<R> {
 public:
  explicit cuda_mr(R from) : detail::cuda_mr_base<R>{std::move(from)} {}

  friend bool operator==(const cuda_mr& a, const cuda_mr& b) noexcept { return a.from() == b.from(); }
  friend bool operator!=(const cuda_mr& a, const cuda_mr& b) noexcept { return !(a == b); }

  friend constexpr void get_property(const cuda_mr&, ::cuda::mr::device_accessible) noexcept
      requires(R::kind == memory_kind::device) {}
  friend constexpr void get_property(const cuda_mr&, ::cuda::mr::host_accessible) noexcept
      requires(R::kind != memory_kind::device) {}
};

}  // namespace vtier
