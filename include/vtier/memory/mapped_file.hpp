// SPDX-License-Identifier: Apache-2.0
#pragma once

// Memory in files on NVMe drives: the largest tier, and containers larger than DRAM.
//
// The files have no name (a crash leaves nothing behind) and their space is reserved before it is promised. Bulk
// traffic of a tier goes by direct I/O; host code reaches the bytes through a mapping.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/notes.hpp>
#include <vtier/core/process_mark.hpp>
#include <vtier/io/engine.hpp>
#include <vtier/memory/budget.hpp>
#include <vtier/memory/detail/alignment.hpp>
#include <vtier/memory/detail/file_range.hpp>
#include <vtier/memory/detail/pages.hpp>
#include <vtier/memory/ranges.hpp>
#include <vtier/memory/resource.hpp>

namespace vtier {

/// Limits of a `mapped_file` resource.
struct mapped_file_options {
  std::size_t budget = 0;                               // bytes, over all directories
  std::string name = "file";                            // in messages and reports
  io::engine_kind engine = io::engine_kind::automatic;  // for a tier's bulk traffic
  bool direct = true;                                   // past the page cache where the file system can
  std::size_t stripe_bytes = 0;                         // with several directories; 0: 16 MiB or what suits the budget
  std::size_t queue_depth_max = 0;                      // 0: the engine's default
};

/// Memory in unnamed files in one or several directories.
///
/// Units   bytes; whole pages, or the file system's blocks where these are larger, are charged to the budget
/// Needs   directories that exist, are writable, and are not links
/// Gives   a resource whose pointers host code may touch; deallocated space goes back to the file system
/// Errors  io_error from the constructor for a directory that cannot be used; out_of_memory from the budget, io_error
///         (ENOSPC) from a full disk: never a signal at the first store; usage_error in a forked child, which shares
///         the file with its parent. What it gives back stays the parent's
/// Threads any
class mapped_file {
 public:
  static constexpr memory_kind kind = memory_kind::file;

  mapped_file(std::string directory, const mapped_file_options& options)
      : mapped_file{std::vector<std::string>{std::move(directory)}, options} {}
  mapped_file(std::vector<std::string> directories, const mapped_file_options& options)
      : state_{std::make_shared<state>(std::move(directories), options)} {}

  [[nodiscard]] void* allocate(std::size_t size_bytes, std::size_t alignment_bytes) const {
    detail::check_alignment(name(), alignment_bytes);
    if (alignment_bytes > detail::page_bytes()) {
      throw usage_error(name() + ": a mapping is aligned to pages, asked " + format_bytes(alignment_bytes));
    }
    if (size_bytes == 0) return nullptr;
    state_->home.check("this mapped_file");
    const auto charged = checked_align_up(size_bytes, state_->map.granule_bytes());
    if (!charged) throw state_->limit.exceeded(size_bytes);
    if (!state_->limit.try_take(*charged)) throw state_->limit.exceeded(size_bytes);
    try {
      const std::scoped_lock hold{state_->lock};
      const auto taken = state_->map.take(*charged, [](const no_event&) { return true; });
      if (!taken) throw in_pieces(size_bytes);
      try {
        std::byte* const base = state_->heap.base();
        state_->heap.reserve(taken->offset_bytes, taken->size_bytes);
        return base + taken->offset_bytes;
      } catch (...) {
        state_->heap.release(taken->offset_bytes, taken->size_bytes);  // a disk that fills up may have given a part
        state_->map.give_back(taken->offset_bytes, taken->size_bytes, {});
        throw;
      }
    } catch (...) {
      state_->limit.give_back(*charged);
      throw;
    }
  }

  void deallocate(void* pointer, std::size_t size_bytes, std::size_t /*alignment_bytes*/) const noexcept {
    if (pointer == nullptr || !state_->home.here()) return;
    const std::size_t charged = align_up(size_bytes, state_->map.granule_bytes());
    {
      const std::scoped_lock hold{state_->lock};
      const auto offset = static_cast<std::size_t>(static_cast<std::byte*>(pointer) - state_->heap.base());
      state_->heap.release(offset, charged);
      state_->map.give_back(offset, charged, {});
    }
    state_->limit.give_back(charged);
  }

  /// Gives the rest of the budget as one range in files of its own; space is reserved by slab::commit.
  ///
  /// Errors  usage_error where nothing is left; io_error as the constructor
  [[nodiscard]] slab make_slab() const {
    state_->home.check("this mapped_file");
    const std::size_t rest = state_->limit.take_rest();
    std::unique_ptr<backing> owner;
    try {
      if (rest == 0) {
        throw usage_error(name() + ": nothing is left of its budget of " + format_bytes(state_->limit.limit_bytes()));
      }
      owner = std::make_unique<backing>(state_, rest);
    } catch (...) {
      state_->limit.give_back(rest);
      throw;
    }
    slab_properties properties;
    properties.name = name();
    properties.kind = kind;
    properties.size_bytes = align_down(rest, owner->files.alignment_bytes());
    properties.alignment_bytes = (std::max)(properties.alignment_bytes, owner->files.alignment_bytes());
    properties.offset_alignment_bytes = owner->files.alignment_bytes();
    properties.memory_alignment_bytes = owner->files.memory_alignment_bytes();
    properties.lazy = true;
    properties.place = owner->files.place();
    if (properties.size_bytes == 0) {
      throw usage_error(name() + ": its budget of " + format_bytes(rest) + " is less than the file system's block of " +
                        format_bytes(owner->files.alignment_bytes()));
    }
    return {std::move(properties), std::move(owner)};
  }

  [[nodiscard]] const std::string& name() const noexcept { return state_->limit.name(); }
  [[nodiscard]] std::size_t free_bytes() const noexcept { return state_->limit.free_bytes(); }
  [[nodiscard]] std::size_t budget_bytes() const noexcept { return state_->limit.limit_bytes(); }
  [[nodiscard]] std::size_t peak_bytes() const noexcept { return state_->limit.peak_bytes(); }
  [[nodiscard]] std::vector<std::string> notes() const { return state_->remarks.list(); }

  friend bool operator==(const mapped_file& a, const mapped_file& b) noexcept { return a.state_ == b.state_; }

 private:
  struct no_event {};

  struct state {
    state(std::vector<std::string> where, const mapped_file_options& wanted)
        : directories{std::move(where)},
          options{wanted},
          limit{wanted.name, wanted.budget},
          heap{directories, wanted.direct, wanted.budget, wanted.stripe_bytes, remarks},
          map{heap.size_bytes(), (std::max)(detail::page_bytes(), heap.alignment_bytes())} {}

    process_mark home;
    std::vector<std::string> directories;
    mapped_file_options options;
    vtier::notes remarks;
    budget limit;
    std::mutex lock;
    detail::file_range heap;
    ranges<no_event> map;
  };

  struct backing final : detail::slab_backing {
    backing(std::shared_ptr<state> from, std::size_t size)
        : owner{std::move(from)},
          size_bytes{size},
          files{owner->directories, owner->options.direct, size, owner->options.stripe_bytes, owner->remarks} {}
    ~backing() override { owner->limit.give_back(size_bytes); }
    std::byte* base() override { return files.base(); }
    void commit(std::size_t end_bytes) override {
      if (end_bytes <= committed_bytes) return;
      owner->home.check("this mapped_file");
      files.reserve(committed_bytes, end_bytes - committed_bytes);
      committed_bytes = end_bytes;
    }
    // Whole blocks; the block of the last byte that stays is kept.
    void shrink(std::size_t end_bytes) noexcept override {
      const std::size_t end = align_up(end_bytes, (std::max)(files.alignment_bytes(), detail::page_bytes()));
      if (end >= committed_bytes || !owner->home.here()) return;
      files.release(end, committed_bytes - end);
      committed_bytes = end;
    }
    file_place locate(std::size_t offset_bytes) const override { return files.locate(offset_bytes); }
    std::optional<io::engine> make_engine(vtier::notes& remarks) const override {
      io::engine_options limits;
      if (owner->options.queue_depth_max != 0) limits.depth_max = owner->options.queue_depth_max;
      return io::make_engine(owner->options.engine, limits, remarks);
    }

    std::shared_ptr<state> owner;
    std::size_t size_bytes;
    std::size_t committed_bytes = 0;
    detail::file_range files;
  };

  // Called under the lock, after the bytes were charged.
  [[nodiscard]] out_of_memory in_pieces(std::size_t size_bytes) const {
    const std::size_t free = state_->map.free_bytes();
    return {name(), size_bytes, free,
            name() + ": asked " + format_bytes(size_bytes) + ", free " + format_bytes(free) + ", of these " +
                format_bytes(state_->map.largest_free_bytes()) + " in one piece: free something or raise the budget"};
  }

  std::shared_ptr<state> state_;
};

static_assert(host_resource<mapped_file>);

}  // namespace vtier
