// SPDX-License-Identifier: Apache-2.0
#pragma once

// A file for bytes that need not outlive the process: unnamed, its space reserved before it is promised.
//
// Nothing stays behind, whichever way the process ends, because no name leads to the file. Which way of opening it
// works, and which alignment direct I/O wants, is asked of the directory, not assumed. Moving bytes is an engine's
// business.

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/core/error.hpp>
#include <vtier/io/detail/descriptor.hpp>
#include <vtier/io/detail/errno_name.hpp>
#include <vtier/io/detail/posix_system.hpp>
#include <vtier/io/detail/unnamed_file.hpp>

namespace vtier::io {

/// How a scratch file is opened.
struct scratch_file_options {
  bool direct = true;  // past the page cache where the file system can; it falls back, with a note
};

/// Owns an unnamed file in a directory.
///
/// Threads one at a time for reserve, release and moves; the rest any. Transfers through descriptor() may go on beside
///         reserve and release of other ranges
class scratch_file {
 public:
  /// Creates an empty file, mode 0600, that no path leads to.
  ///
  /// Needs   a directory that exists, is writable, and is not itself a link (links before it in the path are followed)
  /// Gives   a file open for direct I/O where that was asked for and works, else a buffered one and a note. Without
  ///         O_TMPFILE it has a random name for the moment between two system calls: a kill right there leaves an empty
  ///         file ".vtier-...". Space is free again once every process has closed the file; forked children hold it
  ///         too, and what a killed process had in flight in a ring keeps it for some moments more
  /// Errors  io_error (ENOENT, ENOTDIR, ELOOP, EACCES, EROFS, ENAMETOOLONG, ENOSPC ...) naming the directory and what
  ///         to do; nothing is left behind
  /// Threads any
  /// Cost    about seven system calls, among them a write and a read of one block
  /// Source  open(2), statx(2)
  template <class System = detail::posix_system>
  [[nodiscard]] static scratch_file create(const std::string& directory, const scratch_file_options& options = {},
                                           const System& system = {}) {
    scratch_file made{directory};
    const detail::descriptor place = detail::open_directory(system, made.path_);
    bool direct = options.direct;
    made.file_ = detail::open_unnamed(system, place, direct, made.path_, made.notes_);
    if (!direct) return made;  // not wanted, or refused

    std::string reason = "statx";
    if (const auto rules = detail::direct_rules(system, made.file_, made.path_, made.notes_)) {
      const int error = detail::probe_direct(system, made.file_, *rules);
      if (error == 0) {
        made.alignment_ = *rules;
        made.direct_ = true;
        return made;
      }
      if (!detail::lacks_direct(error)) throw detail::directory_error(error, made.path_, "cannot write to a file in");
      reason = detail::errno_name(error) + " at the first transfer";
    }
    made.notes_.clear();  // what was guessed about direct I/O no longer matters
    direct = false;
    made.file_ = detail::open_unnamed(system, place, direct, made.path_, made.notes_);
    made.notes_.push_back(detail::path_text(made.path_) + ": direct I/O is refused (" + reason +
                          "); file bytes go through the page cache");
    return made;
  }

  /// Makes sure that the bytes [offset, offset + size) have space on the drive; the file grows as needed.
  ///
  /// Units   bytes
  /// Needs   nobody writes into the range meanwhile
  /// Gives   space that later writes cannot find missing; bytes already written stay, new ones read as zeros. Where
  ///         the file system has no fallocate, the range is written (zeros, or what it held) and synchronised, and a
  ///         note says so
  /// Errors  io_error: ENOSPC and EDQUOT name the directory, what was asked and what is free; EFBIG for a file larger
  ///         than allowed, never a signal. The file is as long as before; what was reserved before stays reserved
  /// Cost    one system call; without fallocate a write of the range
  /// Source  fallocate(2)
  template <class System = detail::posix_system>
  void reserve(std::size_t offset_bytes, std::size_t size_bytes, const System& system = {}) {
    if (size_bytes == 0) return;
    const auto end = checked_add(offset_bytes, size_bytes);
    constexpr auto file_end_max = static_cast<std::size_t>((std::numeric_limits<std::int64_t>::max)());
    if (!end || *end > (std::min)(file_end_max, system.file_bytes_max())) {
      throw cannot_reserve(system, EFBIG, offset_bytes, size_bytes);
    }
    const std::size_t length = length_bytes(system);
    int error = allocate(system, offset_bytes, size_bytes);
    if (error == EOPNOTSUPP || error == ENOSYS) {
      error = write_over(system, offset_bytes, *end, length);
      if (error == 0) {
        say(detail::path_text(path_) + ": no fallocate there; space is reserved by writing, which takes longer");
      }
    }
    if (error == 0) return;
    // All bytes beyond the old end are this call's: given back, so that a failed try does not fill the disk.
    if (length_bytes(system) > length) static_cast<void>(system.ftruncate(file_.get(), length));
    throw cannot_reserve(system, error, offset_bytes, size_bytes);
  }

  /// Gives the space of [offset, offset + size) back to the file system, as far as it can; the bytes are lost.
  ///
  /// Units   bytes
  /// Needs   no transfer in flight in the range; reserve() again before the next use
  /// Errors  none: where holes cannot be made the space stays with the file
  template <class System = detail::posix_system>
  void release(std::size_t offset_bytes, std::size_t size_bytes, const System& system = {}) noexcept {
    if (size_bytes == 0) return;
    static_cast<void>(detail::uninterrupted([&] {
      return system.fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset_bytes, size_bytes);
    }));
  }

  /// The open file, for engines and mappings; it stays this object's.
  [[nodiscard]] int descriptor() const noexcept { return file_.get(); }
  /// Whether transfers go past the page cache.
  [[nodiscard]] bool direct() const noexcept { return direct_; }
  /// What offsets and lengths of transfers must be multiples of, in bytes: 1 on a buffered file.
  [[nodiscard]] std::size_t alignment_bytes() const noexcept { return alignment_.offset_bytes; }
  /// What addresses of memory in transfers must be multiples of, in bytes: 1 on a buffered file.
  [[nodiscard]] std::size_t memory_alignment_bytes() const noexcept { return alignment_.memory_bytes; }
  /// The directory as it was given, for messages.
  [[nodiscard]] const std::string& path() const noexcept { return path_; }
  /// What this file does without, and why.
  [[nodiscard]] const std::vector<std::string>& notes() const noexcept { return notes_; }

  /// The space that the file has on its drive, in bytes, as the file system counts it: some add their own tables.
  ///
  /// Cost    one system call
  template <class System = detail::posix_system>
  [[nodiscard]] std::size_t reserved_bytes(const System& system = {}) const noexcept {
    constexpr std::size_t block_bytes = 512;  // whatever the file system's own block is
    struct ::statx about {};
    return system.statx(file_.get(), about) == 0 ? std::size_t{about.stx_blocks} * block_bytes : 0;
  }

 private:
  explicit scratch_file(std::string path) : path_{std::move(path)} {}

  template <class System>
  [[nodiscard]] std::size_t length_bytes(const System& system) const noexcept {
    struct ::statx about {};
    return system.statx(file_.get(), about) == 0 ? std::size_t{about.stx_size} : 0;
  }

  // 0 or errno. tmpfs undoes the whole of an interrupted call: under a storm of signals only smaller ones get through.
  template <class System>
  [[nodiscard]] int allocate(const System& system, std::size_t offset_bytes, std::size_t size_bytes) const noexcept {
    constexpr std::size_t part_min = 65536;
    std::size_t part_max = size_bytes;
    while (size_bytes > 0) {
      const std::size_t part = (std::min)(size_bytes, part_max);
      const int result = system.fallocate(file_.get(), 0, offset_bytes, part);
      if (result == -EINTR) {
        part_max = (std::max)(part / 2, part_min);
        continue;
      }
      if (result < 0) return -result;
      offset_bytes += part;
      size_bytes -= part;
    }
    return 0;
  }

  // 0 or errno. Writes [offset, end), widened to whole blocks, with what it holds: `length` is where the file ended.
  template <class System>
  [[nodiscard]] int write_over(const System& system, std::size_t offset_bytes, std::size_t end_bytes,
                               std::size_t length) const {
    const auto last = checked_align_up(end_bytes, alignment_.offset_bytes);
    if (!last) return EFBIG;
    const std::size_t chunk = (std::max)(std::size_t{1} << 20U, alignment_.offset_bytes);
    const detail::aligned_bytes buffer{chunk, (std::max)(alignment_.memory_bytes, alignment_.offset_bytes)};
    for (std::size_t at = align_down(offset_bytes, alignment_.offset_bytes); at < *last;) {
      const std::size_t size = (std::min)(chunk, *last - at);
      std::fill_n(buffer.data(), size, std::byte{});
      const std::size_t held = at < length ? (std::min)(size, length - at) : 0;
      for (std::size_t done = 0; done < held;) {
        const std::size_t from = align_down(done, alignment_.offset_bytes);
        const std::int64_t got = detail::uninterrupted(
            [&] { return system.pread(file_.get(), buffer.data() + from, size - from, at + from); });
        if (got < 0) return static_cast<int>(-got);
        if (from + static_cast<std::size_t>(got) <= done) return EIO;  // bytes that should be there are not
        done = from + static_cast<std::size_t>(got);
      }
      for (std::size_t done = 0; done < size;) {
        const std::size_t from = align_down(done, alignment_.offset_bytes);
        const std::int64_t put = detail::uninterrupted(
            [&] { return system.pwrite(file_.get(), buffer.data() + from, size - from, at + from); });
        if (put < 0) return static_cast<int>(-put);
        if (from + static_cast<std::size_t>(put) <= done) return ENOSPC;  // a full drive may take a part, then nothing
        done = from + static_cast<std::size_t>(put);
      }
      at += size;
    }
    // Network file systems find out only here that there is no room.
    return -detail::uninterrupted([&] { return system.fdatasync(file_.get()); });
  }

  template <class System>
  [[nodiscard]] io_error cannot_reserve(const System& system, int error, std::size_t offset_bytes,
                                        std::size_t size_bytes) const {
    std::string text = "cannot reserve " + format_bytes(size_bytes) + " at offset " + std::to_string(offset_bytes) +
                       " of a file in " + detail::path_text(path_) + " (" + detail::errno_name(error) + "); ";
    const std::optional<std::size_t> free = system.free_bytes(file_.get());
    text += free ? format_bytes(*free) + " are free there" : "what is free there is not known";
    if (error == EFBIG) {
      text += "; a file of this user or file system may not be that large: raise ulimit -f or give several directories";
    } else {
      text += "; free space, lower the budget, or give another directory";
    }
    return {error, text};
  }

  void say(std::string sentence) {
    if (std::find(notes_.begin(), notes_.end(), sentence) == notes_.end()) notes_.push_back(std::move(sentence));
  }

  std::string path_;
  detail::descriptor file_;
  bool direct_ = false;
  detail::alignment_rules alignment_;
  std::vector<std::string> notes_;
};

}  // namespace vtier::io
