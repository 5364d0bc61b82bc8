// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which file engine, and its limits.
//
// One struct for all engines, so that a caller can write its limits down before it is known which engine the machine
// allows.

#include <cstddef>
#include <cstdint>
#include <string>

#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>

namespace vtier::io {

/// Which engine to make: `automatic` is io_uring where it works, else threads.
enum class engine_kind : std::uint8_t { automatic, uring, threads };

/// How much a file engine does at once.
///
/// Units   bytes; counts
struct engine_options {
  /// The most that one system call of Linux moves.
  static constexpr std::size_t transfer_bytes_limit = (std::size_t{1} << 31U) - 4096U;
  /// The most entries that a ring of Linux has.
  static constexpr std::size_t depth_limit = 32768;
  /// More threads than this are a mistake in units.
  static constexpr std::size_t thread_count_limit = 1024;

  std::size_t depth_max = 64;                             // requests in flight, those that wait to be reaped included
  std::size_t thread_count = 4;                           // used by `threads` only
  std::size_t transfer_bytes_max = transfer_bytes_limit;  // one request moves no more: a test sets 7
};

/// Looks whether limits can work.
///
/// Errors  usage_error that names the field, its value and its range
/// Threads any
inline void check(const engine_options& options) {
  const auto in_range = [](const char* field, std::size_t value, std::size_t limit) {
    if (value >= 1 && value <= limit) return;
    throw usage_error("engine_options." + std::string(field) + " is " + std::to_string(value) + ": give 1 to " +
                      std::to_string(limit));
  };
  in_range("depth_max", options.depth_max, engine_options::depth_limit);
  in_range("thread_count", options.thread_count, engine_options::thread_count_limit);
  in_range("transfer_bytes_max", options.transfer_bytes_max, engine_options::transfer_bytes_limit);
}

}  // namespace vtier::io
