// SPDX-License-Identifier: Apache-2.0
#pragma once

// How file bytes move: submit requests, reap completions, at a bounded depth.
//
// The concept is the seam between the library and the kernel's ways of doing file I/O; `io::uring` and `io::threads`
// are its models. An engine moves what it is told and reports what happened; retries of short transfers are the
// business of `transfer/`.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <vtier/core/config.hpp>

namespace vtier {

/// Which way file bytes go.
enum class file_operation : std::uint8_t { read, write };

/// One read or write at a file offset.
///
/// Units   bytes; offset from the start of the file
/// Needs   memory that stays until the completion was reaped; on a direct file, offset, size and memory aligned
struct file_request {
  int descriptor = -1;
  file_operation operation = file_operation::read;
  std::size_t offset_bytes = 0;
  std::span<std::byte> memory;  // source of a write, target of a read
  std::uint64_t tag = 0;        // given back in the completion; unique among those in flight
};

/// What became of one request.
///
/// Units   result: bytes moved, which can be fewer than asked, or -errno
struct file_completion {
  std::uint64_t tag = 0;
  std::int64_t result = 0;
};

/// Something that moves file bytes without blocking the caller.
///
/// Gives   try_submit(request): false where depth_max() requests are in flight or the kernel takes no more just now;
///         nothing has happened then. reap(completions): fills from the front, gives how many, never blocks. wait(ns):
///         blocks until a completion can be reaped or the time has passed, and returns at once where nothing is in
///         flight; EINTR is not an error. in_flight() counts what was accepted and not yet reaped.
///         register_buffers(spans): tells the engine which memory requests will use, in place of what it was told
///         before; false where it cannot use that, which is never an error. The destructor returns when no memory of
///         a request is touched any more.
/// Errors  io_error from the constructor, and from try_submit where the engine itself is broken; what happens to a
///         request is in its completion
/// Threads one at a time
template <class E>
concept file_engine = requires(E& engine, const E& constant, const file_request& request,
                               std::span<file_completion> completions, std::int64_t timeout_ns,
                               std::span<const std::span<std::byte>> buffers) {
  { engine.try_submit(request) } -> std::same_as<bool>;
  { engine.reap(completions) } -> std::same_as<std::size_t>;
  { engine.wait(timeout_ns) } -> std::same_as<void>;
  { engine.register_buffers(buffers) } -> std::same_as<bool>;
  { constant.in_flight() } -> std::same_as<std::size_t>;
  { constant.depth_max() } -> std::same_as<std::size_t>;
  { constant.name() } -> std::same_as<std::string_view>;
};

}  // namespace vtier
