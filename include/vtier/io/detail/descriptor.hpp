// SPDX-License-Identifier: Apache-2.0
#pragma once

// Who closes a descriptor: exactly one owner, on every way out.
//
// A file of its own because opening a file takes several tries here, and each may end in an exception.

#include <unistd.h>

#include <utility>

#include <vtier/core/config.hpp>

namespace vtier::io::detail {

/// Owns one descriptor of the process, or none (-1).
///
/// Threads one at a time
class descriptor {
 public:
  descriptor() = default;
  explicit descriptor(int number) noexcept : number_{number} {}
  descriptor(descriptor&& other) noexcept : number_{std::exchange(other.number_, -1)} {}
  descriptor& operator=(descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  descriptor(const descriptor&) = delete;
  descriptor& operator=(const descriptor&) = delete;
  ~descriptor() {
    if (number_ >= 0) static_cast<void>(::close(number_));  // also after EINTR the number is gone: never twice
  }

  /// The number; -1 for none.
  [[nodiscard]] int get() const noexcept { return number_; }

 private:
  int number_ = -1;
};

}  // namespace vtier::io::detail
