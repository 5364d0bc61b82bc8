// SPDX-License-Identifier: Apache-2.0
#pragma once

// The library's pool as the bench drives all allocators: null where there is no memory, and bytes taken from below.
//
// A template over the pool, so that each kind of pool (each lock) is one line where the allocators are listed.

#include <cstddef>
#include <new>
#include <optional>

#include "support/address_space.hpp"

namespace vtier::bench {

/// An allocator under measurement: `allocate` gives null where it has no memory, `taken_bytes` what it holds of what
/// lies below it, empty where that cannot be told.
///
/// Threads as the pool
template <class Pool>
class ours {
 public:
  /// Whether blocks may be written to.
  static constexpr bool touchable = false;

  explicit ours(std::size_t address_bytes) : below_{address_bytes}, pool_{below_} {}

  [[nodiscard]] void* allocate(std::size_t size_bytes) {
    try {
      return pool_.allocate(size_bytes, 256);
    } catch (const std::bad_alloc&) {
      return nullptr;
    }
  }
  void deallocate(void* pointer, std::size_t size_bytes) { pool_.deallocate(pointer, size_bytes, 256); }
  [[nodiscard]] std::optional<std::size_t> taken_bytes() { return below_.committed_bytes(); }

 private:
  address_space below_;
  Pool pool_;
};

}  // namespace vtier::bench
