// SPDX-License-Identifier: Apache-2.0
#pragma once

// One address range over one or several unnamed files: striping, reserving space, and the mapping for host code.
//
// Offset o lies in stripe o / stripe_bytes; stripes go round the files, so that neighbours use different drives. With
// one file the stripe is the whole range. The mapping is made at the first question for it; space is reserved before an
// address is given out, because a store into unreserved space on a full disk kills the process.

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/notes.hpp>
#include <vtier/io/scratch_file.hpp>
#include <vtier/memory/detail/pages.hpp>
#include <vtier/memory/slab.hpp>

namespace vtier::detail {

/// A range of file bytes [0, size).
///
/// Units   bytes
/// Threads any
class file_range {
 public:
  /// Errors  io_error for a directory that cannot be used
  file_range(const std::vector<std::string>& directories, bool direct, std::size_t size_bytes, std::size_t stripe_bytes,
             const notes& remarks)
      : remarks_{remarks} {
    if (directories.empty()) throw usage_error("a mapped_file needs at least one directory");
    io::scratch_file_options options;
    options.direct = direct;
    for (const auto& directory : directories) files_.push_back(io::scratch_file::create(directory, options));
    for (const auto& file : files_) {
      alignment_bytes_ = (std::max)(alignment_bytes_, file.alignment_bytes());
      memory_alignment_bytes_ = (std::max)(memory_alignment_bytes_, file.memory_alignment_bytes());
      repeat_notes(file);
    }
    // Mappings count in pages, and there are at most about 65,000 of them in a process.
    const std::size_t unit = (std::max)(alignment_bytes_, page_bytes());
    const std::size_t least = (std::max)(std::size_t{16} << 20U, size_bytes / 16384U);
    const auto whole = checked_align_up(size_bytes, unit);
    const auto stripe = checked_align_up(stripe_bytes == 0 ? least : stripe_bytes, unit);
    if (!whole || !stripe) throw usage_error("a mapped_file was asked for more bytes than 64 bits can count");
    size_bytes_ = (std::max)(*whole, unit);
    stripe_bytes_ = files_.size() == 1 ? size_bytes_ : *stripe;
  }

  file_range(const file_range&) = delete;
  file_range& operator=(const file_range&) = delete;

  ~file_range() {
    if (base_ != nullptr) ::munmap(base_, mapped_bytes());
  }

  /// Makes sure that the bytes [offset, offset + size) have space on their drives.
  ///
  /// Errors  io_error (ENOSPC and others) that names the directory; what was reserved before stays
  void reserve(std::size_t offset_bytes, std::size_t size_bytes) {
    const std::scoped_lock hold{lock_};
    const auto one = [&](std::size_t file, std::size_t at, std::size_t count, std::size_t offset) {
      files_[file].reserve(at, count);
      repeat_notes(files_[file]);
      if (base_ != nullptr && files_.size() > 1) map_piece(file, at, count, offset);
    };
    for_each_piece(offset_bytes, size_bytes, one);
    end_bytes_ = (std::max)(end_bytes_, offset_bytes + size_bytes);
  }

  /// Gives the space of [offset, offset + size) back to the file system.
  void release(std::size_t offset_bytes, std::size_t size_bytes) noexcept {
    const std::scoped_lock hold{lock_};
    for_each_piece(offset_bytes, size_bytes, [&](std::size_t file, std::size_t at, std::size_t count, std::size_t) {
      files_[file].release(at, count);
    });
  }

  /// Where an offset lies.
  [[nodiscard]] file_place locate(std::size_t offset_bytes) const noexcept {
    const std::size_t stripe = offset_bytes / stripe_bytes_;
    const std::size_t within = offset_bytes % stripe_bytes_;
    const std::size_t file = stripe % files_.size();
    return {files_[file].descriptor(), stripe / files_.size() * stripe_bytes_ + within, stripe_bytes_ - within};
  }

  /// The mapping of the whole range; only reserved bytes may be touched.
  ///
  /// Errors  io_error where the file system maps no files
  [[nodiscard]] std::byte* base() {
    const std::scoped_lock hold{lock_};
    if (base_ != nullptr) return base_;
    const bool striped = files_.size() > 1;
    void* const pointer = ::mmap(nullptr, mapped_bytes(), striped ? PROT_NONE : PROT_READ | PROT_WRITE,
                                 striped ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED | MAP_NORESERVE,
                                 striped ? -1 : files_.front().descriptor(), 0);
    if (pointer == MAP_FAILED) throw refused(files_.front(), errno);
    base_ = static_cast<std::byte*>(pointer);
    if (striped) {
      try {
        for_each_piece(0, end_bytes_, [&](std::size_t file, std::size_t at, std::size_t count, std::size_t offset) {
          map_piece(file, at, count, offset);
        });
      } catch (...) {
        ::munmap(std::exchange(base_, nullptr), mapped_bytes());
        throw;
      }
    }
    return base_;
  }

  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }
  [[nodiscard]] std::size_t alignment_bytes() const noexcept { return alignment_bytes_; }
  [[nodiscard]] std::size_t memory_alignment_bytes() const noexcept { return memory_alignment_bytes_; }

  /// The directories, for messages.
  [[nodiscard]] std::string place() const {
    std::string text;
    for (const auto& file : files_) text += (text.empty() ? "" : ", ") + file.path();
    return text;
  }

 private:
  void repeat_notes(const io::scratch_file& file) {
    for (const std::string& remark : file.notes()) remarks_.say(remark);
  }

  [[nodiscard]] std::size_t mapped_bytes() const noexcept { return align_up(size_bytes_, page_bytes()); }

  template <class Function>
  void for_each_piece(std::size_t offset_bytes, std::size_t size_bytes, Function&& function) {
    while (size_bytes > 0) {
      const std::size_t stripe = offset_bytes / stripe_bytes_;
      const std::size_t within = offset_bytes % stripe_bytes_;
      const std::size_t count = (std::min)(size_bytes, stripe_bytes_ - within);
      function(stripe % files_.size(), stripe / files_.size() * stripe_bytes_ + within, count, offset_bytes);
      offset_bytes += count;
      size_bytes -= count;
    }
  }

  void map_piece(std::size_t file, std::size_t at, std::size_t count, std::size_t offset) {
    const std::size_t skip = at % page_bytes();  // mappings start at pages; the same page twice is the same bytes
    void* const pointer =
        ::mmap(base_ + offset - skip, count + skip, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
               files_[file].descriptor(), static_cast<::off_t>(at - skip));
    if (pointer == MAP_FAILED) throw refused(files_[file], errno);
  }

  static io_error refused(const io::scratch_file& file, int error) {
    return {error, "cannot map a file in " + file.path() +
                       ": use a directory on a local file system, or leave the tier to the device's leases"};
  }

  std::mutex lock_;
  notes remarks_;
  std::vector<io::scratch_file> files_;
  std::size_t alignment_bytes_ = 1;
  std::size_t memory_alignment_bytes_ = 1;
  std::size_t size_bytes_ = 0;
  std::size_t stripe_bytes_ = 0;
  std::size_t end_bytes_ = 0;
  std::byte* base_ = nullptr;
};

}  // namespace vtier::detail
