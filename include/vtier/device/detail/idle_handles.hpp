// SPDX-License-Identifier: Apache-2.0
#pragma once

// Handles of a runtime that wait for their next use, because making one costs more than using it.
//
// A file of its own because it knows nothing of the runtime: it keeps values, its owner makes and destroys them.

#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

#include <vtier/core/config.hpp>

namespace vtier::detail {

/// A bounded stack of handles.
///
/// Threads any
template <class Handle>
class idle_handles {
 public:
  static constexpr std::size_t count_max = 4096;

  /// Gives the one that came last; empty where there is none.
  [[nodiscard]] std::optional<Handle> take() {
    const std::scoped_lock hold{lock_};
    if (handles_.empty()) return std::nullopt;
    const Handle last = handles_.back();
    handles_.pop_back();
    return last;
  }

  /// Keeps a handle; false where it has no room for it, and the caller has it still.
  [[nodiscard]] bool give(Handle handle) noexcept {
    try {
      const std::scoped_lock hold{lock_};
      if (handles_.size() >= count_max) return false;
      handles_.push_back(handle);
      return true;
    } catch (...) {  // no memory for the list
      return false;
    }
  }

 private:
  std::mutex lock_;
  std::vector<Handle> handles_;
};

}  // namespace vtier::detail
