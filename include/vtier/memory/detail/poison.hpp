// SPDX-License-Identifier: Apache-2.0
#pragma once

// AddressSanitizer is told which host memory of a pool is nobody's, so that a use after free is reported there as it is
// for the heap. Elsewhere these are nothing.

#include <cstddef>
#include <cstdint>

#include <vtier/core/config.hpp>
#include <vtier/memory/slab.hpp>

#if VTIER_HAS_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif

namespace vtier::detail {

#if VTIER_HAS_ADDRESS_SANITIZER
/// Whether a pool of such memory marks what is free.
template <memory_kind Kind>
inline constexpr bool poisons = Kind == memory_kind::host;

/// Makes each access to the bytes a report.
inline void poison(std::uintptr_t first, std::size_t size_bytes) noexcept {
  __asan_poison_memory_region(reinterpret_cast<void*>(first), size_bytes);
}

/// Makes the bytes anybody's again.
inline void unpoison(std::uintptr_t first, std::size_t size_bytes) noexcept {
  __asan_unpoison_memory_region(reinterpret_cast<void*>(first), size_bytes);
}
#else
template <memory_kind Kind>
inline constexpr bool poisons = false;
inline void poison(std::uintptr_t /*first*/, std::size_t /*size_bytes*/) noexcept {}
inline void unpoison(std::uintptr_t /*first*/, std::size_t /*size_bytes*/) noexcept {}
#endif

}  // namespace vtier::detail
