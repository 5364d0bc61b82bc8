// SPDX-License-Identifier: Apache-2.0
#pragma once

// What can go wrong, as types.
//
// One small family, so that a caller can catch vtier::error for all of it, or the standard type that fits. `error` does
// not derive from std::exception itself: each concrete type has exactly one standard base, and `catch
// (std::exception&)` stays unambiguous.

#include <cstddef>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include <vtier/core/config.hpp>

namespace vtier {

/// A text on one line: names and paths that a user gave may hold a newline, or a null that would end a message early.
///
/// Gives   blanks for tabs and newlines, '?' for other control characters
[[nodiscard]] inline std::string one_line(std::string text) {
  for (char& c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (code < 0x20U || code == 0x7FU) c = c == '\n' || c == '\t' || c == '\r' ? ' ' : '?';
  }
  return text;
}

/// What every exception of vtier derives from.
///
/// Gives   a message on one line, whatever the names in it hold
///
/// Threads any
class VTIER_EXPORT error {
 public:
  virtual ~error() = default;

  /// Says what happened and what to do.
  [[nodiscard]] virtual const char* what() const noexcept = 0;

 protected:
  error() = default;
  error(const error&) = default;
  error& operator=(const error&) = default;
};

/// An argument or a use that cannot work: a size that overflows, a budget below its minimum, a second writer.
class VTIER_EXPORT usage_error : public error, public std::logic_error {
 public:
  explicit usage_error(const std::string& message) : std::logic_error(one_line(message)) {}
  [[nodiscard]] const char* what() const noexcept override { return std::logic_error::what(); }
};

/// A tier has no room: the message names it, what was asked, what is free, what is leased and what to do.
class VTIER_EXPORT out_of_memory : public error, public std::bad_alloc {
 public:
  /// Units   bytes
  out_of_memory(std::string tier, std::size_t asked_bytes, std::size_t free_bytes, const std::string& message)
      : detail_{std::make_shared<const content>(content{std::move(tier), one_line(message), asked_bytes, free_bytes})} {
  }
  [[nodiscard]] const char* what() const noexcept override { return detail_->message.c_str(); }

  /// The tier that had no room.
  [[nodiscard]] const std::string& tier() const noexcept { return detail_->tier; }
  /// What was asked, in bytes.
  [[nodiscard]] std::size_t asked_bytes() const noexcept { return detail_->asked_bytes; }
  /// What was free, in bytes; it can be more than was asked when it is in pieces.
  [[nodiscard]] std::size_t free_bytes() const noexcept { return detail_->free_bytes; }

 private:
  struct content {
    std::string tier;
    std::string message;
    std::size_t asked_bytes;
    std::size_t free_bytes;
  };
  std::shared_ptr<const content> detail_;  // copies of an exception must not throw
};

/// A file operation failed: path, what was wanted, what was got, and the errno as code().
class VTIER_EXPORT io_error : public error, public std::system_error {
 public:
  /// Needs   error_number a value of errno, positive
  io_error(int error_number, const std::string& message)
      : std::system_error(error_number, std::generic_category(), one_line(message)) {}
  [[nodiscard]] const char* what() const noexcept override { return std::system_error::what(); }
};

/// The device runtime answered with an error; native_code() is its own number.
class VTIER_EXPORT device_error : public error, public std::runtime_error {
 public:
  device_error(int native_code, const std::string& message)
      : std::runtime_error(one_line(message)), native_code_{native_code} {}
  [[nodiscard]] const char* what() const noexcept override { return std::runtime_error::what(); }

  /// The number that the device's runtime gave (a cudaError_t for CUDA).
  [[nodiscard]] int native_code() const noexcept { return native_code_; }

 private:
  int native_code_;
};

}  // namespace vtier
