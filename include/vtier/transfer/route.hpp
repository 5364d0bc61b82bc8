// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which way bytes go from one kind of memory to another, and in which pieces: values only, tested without a device.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/memory/slab.hpp>

namespace vtier {

/// The step that moves one chunk.
enum class hop : std::uint8_t { device_copy, file_read, file_write };

/// How bytes get from one kind of memory to another: one hop, or two through a staging buffer.
struct route {
  hop first = hop::device_copy;
  hop second = hop::device_copy;
  bool staged = false;  // two hops with a staging buffer between them
};

/// Which hops lead from one kind of memory to another.
///
/// Gives   device and host memory reach each other by one copy in stream order; host memory and files by one transfer
///         of the file engine; device and file, or file and file, through staging
/// Threads any
[[nodiscard]] constexpr route route_of(memory_kind source, memory_kind target) noexcept {
  const bool reads = source == memory_kind::file;
  const bool writes = target == memory_kind::file;
  if (!reads && !writes) return {hop::device_copy, hop::device_copy, false};
  if (reads && writes) return {hop::file_read, hop::file_write, true};
  if (reads) return {hop::file_read, hop::device_copy, target == memory_kind::device};
  return source == memory_kind::device ? route{hop::device_copy, hop::file_write, true}
                                       : route{hop::file_write, hop::file_write, false};
}

/// One piece of a transfer.
///
/// Units   bytes; offset from the start of the tensor. `padded` is what file I/O moves: size rounded up to the
///         alignment of the file, inside the places of both sides
struct chunk {
  std::size_t offset_bytes = 0;
  std::size_t size_bytes = 0;
  std::size_t padded_bytes = 0;
};

/// How many chunks a transfer has.
///
/// Needs   chunk_bytes > 0
/// Threads any
[[nodiscard]] constexpr std::size_t chunk_count(std::size_t size_bytes, std::size_t chunk_bytes) noexcept {
  return size_bytes / chunk_bytes + (size_bytes % chunk_bytes == 0 ? 0U : 1U);
}

/// The chunk of that number.
///
/// Needs   index < chunk_count(...); chunk_bytes a multiple of alignment_bytes, a power of two
/// Gives   chunks that cover every byte once, in order; only the last can be shorter or padded
/// Threads any
[[nodiscard]] constexpr chunk chunk_at(std::size_t index, std::size_t size_bytes, std::size_t chunk_bytes,
                                       std::size_t alignment_bytes) noexcept {
  const std::size_t offset = index * chunk_bytes;
  const std::size_t size = (std::min)(chunk_bytes, size_bytes - offset);
  return {offset, size, align_up(size, alignment_bytes)};
}

/// What staging looks like for a budget.
///
/// Units   bytes
struct staging_shape {
  std::size_t chunk_bytes = 0;
  std::size_t slot_count = 0;
};

/// Cuts a staging budget into slots.
///
/// Needs   alignment_bytes, a power of two: the least chunk
/// Gives   at most chunk_bytes_max a slot and, where the budget allows, at least 8 slots; no slot at all where the
/// budget
///         is less than one alignment unit
/// Threads any
[[nodiscard]] constexpr staging_shape shape_staging(std::size_t budget_bytes, std::size_t chunk_bytes_max,
                                                    std::size_t alignment_bytes) noexcept {
  std::size_t size = align_down((std::min)(chunk_bytes_max, budget_bytes / 8U), alignment_bytes);
  if (size == 0) size = alignment_bytes;
  return {size, budget_bytes / size};
}

}  // namespace vtier
