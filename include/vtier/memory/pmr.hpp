// SPDX-License-Identifier: Apache-2.0
#pragma once

// A host resource for the containers of std::pmr.
//
// A file of its own: <memory_resource> is for those who use it. Typed containers take `allocator`, which costs no
// virtual call and keeps the resource alive by itself.

#include <cstddef>
#include <memory_resource>
#include <utility>

#include <vtier/core/config.hpp>
#include <vtier/memory/resource.hpp>

namespace vtier {

/// A std::pmr::memory_resource over a resource that host code may touch.
///
/// Needs   to live as long as the containers that were given its address, as the standard has it
/// Gives   memory at any alignment that the resource below can give. Zero bytes are one byte: a memory_resource never
///         gives null, and compilers count on that. Two of these are equal only if they are the same object: their
///         types cannot be compared without run-time type information, and containers of two unequal ones copy where
///         they could have moved, which is always right
/// Errors  whatever the resource below throws
/// Threads as the resource below
template <host_resource Resource>
class pmr_resource final : public std::pmr::memory_resource {
 public:
  explicit pmr_resource(Resource from) : from_{std::move(from)} {}
  // A copy would be another resource, which is seldom meant.
  pmr_resource(const pmr_resource&) = delete;
  pmr_resource& operator=(const pmr_resource&) = delete;
  ~pmr_resource() override = default;

  /// The resource that the memory comes from.
  [[nodiscard]] const Resource& from() const noexcept { return from_; }

 private:
  void* do_allocate(std::size_t size_bytes, std::size_t alignment_bytes) override {
    return from_.allocate(at_least_one(size_bytes), alignment_bytes);
  }
  void do_deallocate(void* pointer, std::size_t size_bytes, std::size_t alignment_bytes) override {
    from_.deallocate(pointer, at_least_one(size_bytes), alignment_bytes);
  }
  [[nodiscard]] bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override {
    return this == &other;
  }

  [[nodiscard]] static std::size_t at_least_one(std::size_t size_bytes) noexcept {
    return size_bytes == 0 ? 1 : size_bytes;
  }

  Resource from_;
};

}  // namespace vtier
