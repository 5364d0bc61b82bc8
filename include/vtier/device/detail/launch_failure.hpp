// SPDX-License-Identifier: Apache-2.0
#pragma once

// What becomes of an exception that leaves a launched function: kept, and thrown by a later synchronize().
//
// A file of its own because every device says it in the same words, and none can let it pass: the function runs on a
// thread where nobody catches.

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>

namespace vtier::detail {

/// Says in words what a launched function has thrown.
///
/// Needs   cause not null
[[nodiscard]] inline device_error launch_failure(const std::string& where, const std::exception_ptr& cause) {
  std::string text = where + ": a function launched in a stream threw ";
  try {
    std::rethrow_exception(cause);
  } catch (const std::exception& e) {
    text += "\"" + std::string{e.what()} + "\"";
  } catch (...) {
    text += "something that is no std::exception";
  }
  return {0, text + "; the work after it has run: catch inside the function what it can handle"};
}

/// Keeps the first exception until it is told; the ones after it are its consequences.
///
/// Threads any
class launch_failures {
 public:
  void keep(std::exception_ptr cause) noexcept {
    const std::scoped_lock hold{lock_};
    if (first_ == nullptr) first_ = std::move(cause);
  }

  /// Errors  device_error where something was kept, once
  void tell(const std::string& where) {
    std::exception_ptr cause;
    {
      const std::scoped_lock hold{lock_};
      cause = std::exchange(first_, nullptr);
    }
    if (cause != nullptr) throw launch_failure(where, cause);
  }

 private:
  std::mutex lock_;
  std::exception_ptr first_;
};

/// A function on its way through a queue that knows C functions only.
struct launched_function {
  std::function<void()> function;
  std::shared_ptr<launch_failures> failures;  // not the device: its last handle must not end on the queue's thread

  /// Runs and destroys it; an exception is kept.
  ///
  /// Needs   self from new, given up by the caller
  static void run(void* self) noexcept {
    const std::unique_ptr<launched_function> owned{static_cast<launched_function*>(self)};
    try {
      owned->function();
    } catch (...) {
      owned->failures->keep(std::current_exception());
    }
  }
};

}  // namespace vtier::detail
