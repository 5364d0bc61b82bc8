// SPDX-License-Identifier: Apache-2.0
#pragma once

// One address range of one kind of memory, whoever made it: what a tier is built on.
//
// This is the one place where kinds of memory are erased into a value. Above it a tier is a slab and a map of ranges,
// and nobody asks again whether the bytes are on a GPU, in DRAM or in files.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/config.hpp>
#include <vtier/core/notes.hpp>
#include <vtier/io/engine.hpp>

namespace vtier {

/// Who can reach the bytes: device kernels, host code, or file I/O (and host code through a mapping).
enum class memory_kind { device, host, file };

/// Where a piece of a file-backed slab lies.
///
/// Units   bytes; offset from the start of the file
struct file_place {
  int descriptor = -1;
  std::size_t offset_bytes = 0;
  std::size_t contiguous_bytes = 0;  // how far the piece goes on in this file
};

namespace detail {

/// What a slab is made of; each resource has one implementation.
class slab_backing {
 public:
  slab_backing() = default;
  slab_backing(const slab_backing&) = delete;
  slab_backing& operator=(const slab_backing&) = delete;
  virtual ~slab_backing() = default;
  virtual std::byte* base() = 0;
  virtual void commit(std::size_t /*end_bytes*/) {}
  virtual void shrink(std::size_t /*end_bytes*/) noexcept {}
  virtual file_place locate(std::size_t /*offset_bytes*/) const { return {}; }
  virtual std::optional<io::engine> make_engine(notes& /*remarks*/) const { return std::nullopt; }
};

}  // namespace detail

/// What a slab tells about itself.
///
/// Units   bytes
struct slab_properties {
  std::string name;
  memory_kind kind = memory_kind::host;
  std::size_t size_bytes = 0;
  std::size_t granule_bytes = 1;           // commit and shrink round their ends up to a multiple of this
  std::size_t alignment_bytes = 256;       // every range in it starts and ends at a multiple of this
  std::size_t offset_alignment_bytes = 1;  // what I/O of a file slab needs of offsets and lengths; 1 when buffered
  std::size_t memory_alignment_bytes = 1;  // what it needs of the memory side
  bool lazy = false;                       // bytes exist only once committed, and a tier commits them as it needs them
  bool grows = false;                      // bytes exist only once committed; a tier commits all of them at once
  bool registered = false;                 // page-locked by the device's runtime already
  std::optional<unsigned> node;            // the NUMA node that the bytes are bound to
  std::string place;                       // a directory, a node: for messages
};

/// An address range that is given back when the slab dies.
///
/// Threads one at a time; locate() any
class slab {
 public:
  slab(slab_properties properties, std::unique_ptr<detail::slab_backing> backing)
      : properties_{std::move(properties)}, backing_{std::move(backing)} {}

  [[nodiscard]] const slab_properties& properties() const noexcept { return properties_; }
  [[nodiscard]] memory_kind kind() const noexcept { return properties_.kind; }
  [[nodiscard]] std::size_t size_bytes() const noexcept { return properties_.size_bytes; }

  /// The first byte: a device address, a host address, or the host mapping of a file slab (made at the first call).
  ///
  /// Errors  io_error where a file cannot be mapped
  [[nodiscard]] std::byte* base() const { return backing_->base(); }

  /// Makes the bytes [0, end_bytes) exist; what was committed stays.
  ///
  /// Needs   end_bytes <= size_bytes()
  /// Errors  out_of_memory or io_error that says what is free; nothing is lost, less is committed
  void commit(std::size_t end_bytes) {
    VTIER_ASSERT(end_bytes <= properties_.size_bytes, "more was to be committed than the slab holds");
    backing_->commit(end_bytes);
  }

  /// Gives the bytes behind `end_bytes` back to whoever they are from, as far as they can be: device memory in whole
  /// granules of its range, space of files in whole blocks, host pages that are not locked. Elsewhere nothing happens.
  /// Addresses stay, and commit() makes bytes exist again; they hold anything then.
  ///
  /// Needs   end_bytes <= size_bytes(). Nobody uses the bytes behind it: no work of a device, no transfer, and no host
  ///         memory registered with a device. commit() before they are used again
  /// Gives   the budget of the resource stays charged: the addresses are still promised to this slab
  void shrink(std::size_t end_bytes) noexcept {
    VTIER_ASSERT(end_bytes <= properties_.size_bytes, "a slab was to shrink to more than it holds");
    backing_->shrink(end_bytes);
  }

  /// Where in which file an offset lies.
  ///
  /// Needs   kind() is file
  [[nodiscard]] file_place locate(std::size_t offset_bytes) const { return backing_->locate(offset_bytes); }

  /// The file engine that moves the bytes of this slab; empty where they are in memory.
  ///
  /// Errors  io_error where the engine that was asked for cannot be had
  [[nodiscard]] std::optional<io::engine> make_engine(notes& remarks) const { return backing_->make_engine(remarks); }

 private:
  slab_properties properties_;
  std::unique_ptr<detail::slab_backing> backing_;
};

}  // namespace vtier
