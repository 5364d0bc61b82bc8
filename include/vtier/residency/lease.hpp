// SPDX-License-Identifier: Apache-2.0
#pragma once

// A scoped promise that a tensor's bytes stay where they are: what kernels get their pointers from.

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include <vtier/core/config.hpp>
#include <vtier/residency/access.hpp>

namespace vtier {

/// A lease on a tensor; T is const for a lease that reads.
///
/// Shape   flat: (size(),)
/// Needs   work that uses data() is enqueued on the lease's stream before the lease ends
/// Gives   an address that stays valid for that work; the end of the lease records an event on the stream, before which
///         nothing is moved or reused
/// Errors  none: what goes wrong at the end reaches the hierarchy's report and handler
/// Threads one at a time; it may end in another thread than it began
/// Cost    the end: one lock and one recorded event; no allocation beyond what the device's event needs
template <class T, class Core>
class lease {
 public:
  /// Made by tensor::read, write, read_write.
  lease(std::shared_ptr<Core> core, typename Core::grant granted, std::size_t size) noexcept
      : core_{std::move(core)}, granted_{std::move(granted)}, size_{size} {}

  lease(lease&& other) noexcept
      : core_{std::exchange(other.core_, nullptr)},
        granted_{std::move(other.granted_)},
        size_{std::exchange(other.size_, 0)} {}
  lease& operator=(lease&& other) noexcept {
    if (this != &other) {
      end();
      core_ = std::exchange(other.core_, nullptr);
      granted_ = std::move(other.granted_);
      size_ = std::exchange(other.size_, 0);
    }
    return *this;
  }
  lease(const lease&) = delete;
  lease& operator=(const lease&) = delete;
  ~lease() { end(); }

  /// The first element: a device address, or a host address for a lease of the host; null for zero elements.
  [[nodiscard]] T* data() const noexcept { return static_cast<T*>(granted_.pointer); }

  /// The number of elements.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  /// All elements, for leases whose address the host may touch.
  [[nodiscard]] std::span<T> span() const noexcept { return {data(), size_}; }

  /// Ends the lease before its scope does; a second end does nothing.
  void end() noexcept {
    if (core_ == nullptr) return;
    core_->release(granted_);
    core_ = nullptr;
    granted_.pointer = nullptr;
    size_ = 0;
  }

 private:
  std::shared_ptr<Core> core_;
  typename Core::grant granted_;
  std::size_t size_;
};

}  // namespace vtier
