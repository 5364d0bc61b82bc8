// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which compiler, which optional libraries, and every macro of vtier.
//
// A file of its own so that macros stand in one place: all of them begin with VTIER_, and none changes what a type
// means. The VTIER_HAS_* switches only say whether a header of an outside library may be included; the CMake targets
// set them, a plain -I build may leave them alone.

#if (defined(_MSVC_LANG) && _MSVC_LANG < 202002L) || (!defined(_MSVC_LANG) && __cplusplus < 202002L)
#error "vtier needs C++20: compile with -std=c++20, or link the CMake target vtier::vtier, which asks for it"
#else

#define VTIER_VERSION_MAJOR 0
#define VTIER_VERSION_MINOR 1
#define VTIER_VERSION_PATCH 0

// Optional libraries: 1 where their header may be included.
#ifndef VTIER_HAS_CUDA
#define VTIER_HAS_CUDA 0
#endif
#ifndef VTIER_HAS_HWLOC
#define VTIER_HAS_HWLOC 0
#endif
#ifndef VTIER_HAS_NUMA
#define VTIER_HAS_NUMA 0
#endif
#ifndef VTIER_HAS_URING
#define VTIER_HAS_URING 0
#endif

// Whether AddressSanitizer watches this translation unit.
#if defined(__SANITIZE_ADDRESS__)
#define VTIER_HAS_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define VTIER_HAS_ADDRESS_SANITIZER 1
#endif
#endif
#ifndef VTIER_HAS_ADDRESS_SANITIZER
#define VTIER_HAS_ADDRESS_SANITIZER 0
#endif

// Exceptions must be the same type in every shared library of a process, also with -fvisibility=hidden.
#define VTIER_EXPORT __attribute__((visibility("default")))

// What only the compiler may evaluate. clang before 15 leaves consteval calls in templates to the linker, which has
// nothing for them.
#if defined(__clang__) && __clang_major__ < 15
#define VTIER_CONSTEVAL constexpr
#else
#define VTIER_CONSTEVAL consteval
#endif

// A programmer error: prints what was broken and aborts, in release builds too.
#define VTIER_ASSERT(condition, message) \
  ((condition) ? static_cast<void>(0) : ::vtier::detail::assertion_failed(#condition, message, __FILE__, __LINE__))

#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace vtier {

static_assert(sizeof(std::size_t) == 8, "vtier counts bytes in std::size_t and needs a 64-bit platform");

namespace detail {

/// Prints the broken condition and aborts.
///
/// Errors  none: does not return
/// Threads any
[[noreturn]] inline void assertion_failed(const char* condition, const char* message, const char* file,
                                          int line) noexcept {
  std::fprintf(stderr, "vtier: %s\n  broken: %s\n  at:     %s:%d\n", message, condition, file, line);
  std::abort();
}

}  // namespace detail
}  // namespace vtier

#endif  // C++20
