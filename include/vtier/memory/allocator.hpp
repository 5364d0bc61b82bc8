// SPDX-License-Identifier: Apache-2.0
#pragma once

// Any host resource as a standard allocator: `std::vector<float, vtier::allocator<float, vtier::pinned>>`.

#include <cstddef>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/memory/resource.hpp>

namespace vtier {

/// A standard allocator of T over a resource that host code may touch.
///
/// Shape   flat: n objects of T
/// Needs   a resource; the allocator keeps a handle, so the resource lives as long as the container
/// Gives   memory at the alignment of T; travels with the container on copy, move and swap
/// Errors  whatever the resource throws; std::bad_array_new_length where n objects have more bytes than 64 bits count
/// Threads as the resource
template <class T, host_resource Resource>
class allocator {
 public:
  using value_type = T;
  using propagate_on_container_copy_assignment = std::true_type;
  using propagate_on_container_move_assignment = std::true_type;
  using propagate_on_container_swap = std::true_type;
  using is_always_equal = std::false_type;

  // No moves: a container that was moved from still allocates.
  allocator(const allocator&) = default;
  allocator& operator=(const allocator&) = default;

  allocator(Resource from) noexcept : from_{std::move(from)} {}  // implicit, as std::pmr: a container takes a resource

  template <class U>
  allocator(const allocator<U, Resource>& other) noexcept : from_{other.from()} {}

  template <class U>
  struct rebind {
    using other = allocator<U, Resource>;
  };

  [[nodiscard]] T* allocate(std::size_t count) {
    const auto size_bytes = checked_multiply(count, sizeof(T));
    if (!size_bytes) throw std::bad_array_new_length{};
    return static_cast<T*>(from_.allocate(*size_bytes, alignof(T)));
  }

  void deallocate(T* pointer, std::size_t count) noexcept { from_.deallocate(pointer, count * sizeof(T), alignof(T)); }

  /// What a copy of a container allocates from: the memory of the original.
  [[nodiscard]] allocator select_on_container_copy_construction() const { return *this; }

  /// The resource that the memory comes from.
  [[nodiscard]] const Resource& from() const noexcept { return from_; }

  template <class U>
  friend bool operator==(const allocator& a, const allocator<U, Resource>& b) noexcept {
    return a.from() == b.from();
  }

 private:
  Resource from_;
};

}  // namespace vtier
