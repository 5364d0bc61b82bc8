// SPDX-License-Identifier: Apache-2.0
#pragma once

// Placing pages on NUMA nodes, and reading back where they are.
//
// The only header that knows libnuma, and only its system call wrappers: numa_alloc_* gives a valid pointer also where
// it did not place anything, and numa_available() says yes where a container forbids the calls. Without libnuma every
// function answers "not available".

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <vtier/core/config.hpp>

#if VTIER_HAS_NUMA
#include <numaif.h>
#include <unistd.h>
#endif

namespace vtier {

namespace detail {

/// A set of NUMA nodes as the kernel wants it; wider than any kernel's own.
struct node_mask {
  static constexpr unsigned nodes_max = 4096;
  static constexpr unsigned word_bits = 8 * sizeof(unsigned long);
  std::array<unsigned long, nodes_max / word_bits> words{};

  /// Adds a node; false where no kernel can have it.
  [[nodiscard]] bool add(unsigned node) noexcept {
    if (node >= nodes_max - 1) return false;  // the kernel reads one bit fewer than it is told
    words[node / word_bits] |= 1UL << (node % word_bits);
    return true;
  }
};

#if VTIER_HAS_NUMA
/// Sets the policy of whole pages; gives 0 or errno.
[[nodiscard]] inline int set_page_policy(void* pointer, std::size_t size_bytes, int mode,
                                         const node_mask& mask) noexcept {
  if (size_bytes == 0) return 0;
  return ::mbind(pointer, size_bytes, mode, mask.words.data(), node_mask::nodes_max, 0) == 0 ? 0 : errno;
}
#endif

}  // namespace detail

/// Whether pages can be placed at all: false where vtier was built without libnuma.
///
/// Threads any
[[nodiscard]] constexpr bool can_bind_pages() noexcept { return VTIER_HAS_NUMA != 0; }

/// Binds pages to one node, so that their first touch puts them there.
///
/// Units   bytes; node is the system's number
/// Needs   pointer at the start of a page, pages not touched yet
/// Gives   0, or an errno: EINVAL for a node that does not exist or that this process may not use, EPERM where a
///         container forbids it, ENOSYS where built without libnuma; nothing has changed then
/// Threads any
/// Cost    one system call
/// Source  mbind(2)
[[nodiscard]] inline int bind_pages([[maybe_unused]] void* pointer, [[maybe_unused]] std::size_t size_bytes,
                                    [[maybe_unused]] unsigned node) noexcept {
#if VTIER_HAS_NUMA
  detail::node_mask mask;
  if (!mask.add(node)) return EINVAL;
  return detail::set_page_policy(pointer, size_bytes, MPOL_BIND, mask);
#else
  return ENOSYS;
#endif
}

/// Spreads pages over several nodes in turn, as they are first touched.
///
/// Units   bytes; nodes are the system's numbers
/// Needs   pointer at the start of a page, pages not touched yet
/// Gives   0, or an errno as bind_pages does; EINVAL for no nodes at all
/// Threads any
/// Cost    one system call
/// Source  mbind(2)
[[nodiscard]] inline int interleave_pages([[maybe_unused]] void* pointer, [[maybe_unused]] std::size_t size_bytes,
                                          [[maybe_unused]] std::span<const unsigned> nodes) noexcept {
#if VTIER_HAS_NUMA
  detail::node_mask mask;
  if (nodes.empty()) return EINVAL;
  for (const unsigned node : nodes) {
    if (!mask.add(node)) return EINVAL;
  }
  return detail::set_page_policy(pointer, size_bytes, MPOL_INTERLEAVE, mask);
#else
  return ENOSYS;
#endif
}

/// The share of touched pages that are on a node, from a sample spread over the range.
///
/// Units   bytes in; 0.0 to 1.0 out
/// Gives   empty where no sampled page has been touched, where the system refuses, or where built without libnuma
/// Threads any
/// Cost    one system call for at most 512 pages; no allocation
/// Source  move_pages(2), which moves nothing when it is given no nodes
[[nodiscard]] inline std::optional<double> page_node_share([[maybe_unused]] const void* pointer,
                                                           [[maybe_unused]] std::size_t size_bytes,
                                                           [[maybe_unused]] unsigned node) noexcept {
#if VTIER_HAS_NUMA
  constexpr std::size_t sample_max = 512;
  const long page_answer = ::sysconf(_SC_PAGESIZE);
  if (page_answer <= 0 || size_bytes == 0 || pointer == nullptr) return std::nullopt;
  const std::size_t page = static_cast<std::size_t>(page_answer);
  // Whole pages from the one that the range begins in; the last is the one that its last byte is in.
  const std::size_t head = reinterpret_cast<std::uintptr_t>(pointer) & (page - 1);
  std::byte* const first = static_cast<std::byte*>(const_cast<void*>(pointer)) - head;
  const std::size_t pages = (head + size_bytes - 1) / page + 1;
  const std::size_t count = pages < sample_max ? pages : sample_max;
  std::array<void*, sample_max> addresses{};
  std::array<int, sample_max> status{};
  for (std::size_t i = 0; i < count; ++i) {
    // i * pages / count without its product, which could wrap
    const std::size_t index = pages / count * i + pages % count * i / count;
    addresses[i] = first + index * page;
  }
  if (::move_pages(0, count, addresses.data(), nullptr, status.data(), 0) != 0) return std::nullopt;
  std::size_t resident = 0;
  std::size_t there = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (status[i] < 0) continue;
    ++resident;
    if (static_cast<unsigned>(status[i]) == node) ++there;
  }
  if (resident == 0) return std::nullopt;
  return static_cast<double>(there) / static_cast<double>(resident);
#else
  return std::nullopt;
#endif
}

}  // namespace vtier
