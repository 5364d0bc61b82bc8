// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tables that are read at random want few page table entries: huge pages, where they are long enough for one.

#include <sys/mman.h>

#include <cstddef>
#include <limits>
#include <new>

#include <vtier/core/config.hpp>

namespace vtier::detail {

/// An allocator for the tables of the bookkeeping.
///
/// Gives   memory of operator new; from 2 MiB on aligned to 2 MiB, with the wish for huge pages
template <class T>
struct huge_page_allocator {
  using value_type = T;

  huge_page_allocator() = default;
  template <class U>
  huge_page_allocator(const huge_page_allocator<U>& /*other*/) noexcept {}

  [[nodiscard]] T* allocate(std::size_t count) {
    if (count > (std::numeric_limits<std::size_t>::max)() / sizeof(T)) throw std::bad_alloc{};
    const std::size_t size_bytes = count * sizeof(T);
    void* const got = ::operator new(size_bytes, alignment(size_bytes));
    if (size_bytes >= page_bytes) ::madvise(got, size_bytes, MADV_HUGEPAGE);  // ordinary pages work too
    return static_cast<T*>(got);
  }
  void deallocate(T* pointer, std::size_t count) noexcept { ::operator delete(pointer, alignment(count * sizeof(T))); }

  friend bool operator==(const huge_page_allocator& /*a*/, const huge_page_allocator& /*b*/) noexcept { return true; }

 private:
  static constexpr std::size_t page_bytes = std::size_t{2} << 20U;
  static constexpr std::size_t line_bytes = 64;
  static constexpr std::align_val_t alignment(std::size_t size_bytes) noexcept {
    return std::align_val_t{size_bytes >= page_bytes ? page_bytes : line_bytes};
  }
};

}  // namespace vtier::detail
