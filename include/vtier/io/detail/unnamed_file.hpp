// SPDX-License-Identifier: Apache-2.0
#pragma once

// How a file without a name comes to be in a directory, and by which rules direct I/O goes there.
//
// What a directory supports is a property of its mount and is found out for each directory anew: nothing is remembered
// for the process. The pure decisions are here; `scratch_file` owns the result.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
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

namespace vtier::io::detail {

/// What direct transfers must be multiples of; 1 and 1 where everything is allowed.
struct alignment_rules {
  std::size_t offset_bytes = 1;  // of offsets and lengths
  std::size_t memory_bytes = 1;  // of addresses
};

/// What came of opening: a file, or the errno (positive) for which there is none.
struct opened_file {
  descriptor file;
  int error = 0;
};

/// Memory at an alignment, zeroed.
class aligned_bytes {
 public:
  aligned_bytes(std::size_t size_bytes, std::size_t alignment_bytes)
      : alignment_{static_cast<std::align_val_t>((std::max)(alignment_bytes, sizeof(void*)))},
        bytes_{static_cast<std::byte*>(::operator new(size_bytes, alignment_))} {
    std::fill_n(bytes_, size_bytes, std::byte{});
  }
  aligned_bytes(const aligned_bytes&) = delete;
  aligned_bytes& operator=(const aligned_bytes&) = delete;
  ~aligned_bytes() { ::operator delete(bytes_, alignment_); }
  [[nodiscard]] std::byte* data() const noexcept { return bytes_; }

 private:
  std::align_val_t alignment_;
  std::byte* bytes_;
};

/// The error for a directory that cannot be used: what, where, why, what to do.
[[nodiscard]] inline io_error directory_error(int error_number, const std::string& path, const std::string& doing) {
  const char* advice = "use a directory on a local file system such as ext4 or xfs";
  switch (error_number) {
    case ENOENT:
      advice = path.empty() ? "the name is empty: give a directory" : "make it first, or give another";
      break;
    case ENOTDIR: advice = "it, or a part of its path, is not a directory: give a directory"; break;
    case ELOOP: advice = "links are not followed: give the directory that the link points to"; break;
    case EACCES:
    case EPERM: advice = "this user may not create files there: change the mode or the owner, or give another"; break;
    case EROFS: advice = "the file system is mounted read-only: mount it read-write, or give another"; break;
    case ENAMETOOLONG: advice = "the path is too long: give a shorter one"; break;
    case ENOSPC: advice = "the file system is full: free space, or give another"; break;
    case EDQUOT: advice = "the quota of this user is used up: free space, or give another"; break;
    case EMFILE:
    case ENFILE: advice = "too many open files: raise the limit (ulimit -n)"; break;
    default: break;
  }
  return {error_number, doing + " directory " + path_text(path) + " (" + errno_name(error_number) + "); " + advice};
}

/// Takes away what would make the system follow a link in the last component: "link/" and "link/.".
[[nodiscard]] inline std::string without_trailing_slashes(std::string path) {
  for (;;) {
    if (path.size() > 1 && path.back() == '/') {
      path.pop_back();
    } else if (path.size() > 2 && path.ends_with("/.")) {
      path.pop_back();
    } else {
      return path;
    }
  }
}

/// Opens the directory itself; a link in the last component is not followed.
///
/// Errors  io_error (ENOENT, ENOTDIR, ELOOP, EACCES, ENAMETOOLONG, EINVAL for a path with a null character ...)
template <class System>
[[nodiscard]] descriptor open_directory(const System& system, const std::string& given) {
  const std::string path = without_trailing_slashes(given);
  int got = path.find('\0') != std::string::npos ? -EINVAL
                                                 : uninterrupted([&] { return system.open_directory(path.c_str()); });
  if (got == -ENOTDIR && system.is_link(path.c_str())) got = -ELOOP;  // Linux answers ENOTDIR for both
  if (got < 0) throw directory_error(-got, given, "cannot open");
  return descriptor{got};
}

/// Whether O_TMPFILE is what the system does not know here; everything else is a real error.
[[nodiscard]] inline bool lacks_unnamed_files(int error_number) noexcept {
  return error_number == EOPNOTSUPP || error_number == EISDIR || error_number == ENOSYS || error_number == EINVAL;
}

/// Whether an open or a transfer failed because direct I/O is not known here.
[[nodiscard]] inline bool lacks_direct(int error_number) noexcept {
  return error_number == EINVAL || error_number == EOPNOTSUPP;
}

/// Creates a file under a random name that nobody else uses, and takes the name away at once.
///
/// Errors  io_error where the name could not be taken away again: it names the file that is left
template <class System>
[[nodiscard]] opened_file open_and_unlink(const System& system, int directory, bool direct, const std::string& path) {
  constexpr int attempts_max = 16;
  const int flags = O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC | (direct ? O_DIRECT : 0);
  int got = -EEXIST;
  for (int attempt = 0; attempt < attempts_max && got == -EEXIST; ++attempt) {
    std::string name = ".vtier-";
    for (int half = 0; half < 2; ++half) {
      std::uint64_t bits = 0;
      if (const int failed = uninterrupted([&] { return system.random(bits); }); failed < 0) return {{}, -failed};
      for (int digit = 0; digit < 16; ++digit, bits >>= 4U) name += "0123456789abcdef"[bits & 15U];
    }
    got = uninterrupted([&] { return system.openat(directory, name.c_str(), flags, 0600); });
    if (got >= 0) {
      descriptor file{got};
      const int failed = uninterrupted([&] { return system.unlinkat(directory, name.c_str()); });
      if (failed < 0) throw directory_error(-failed, path, "cannot remove " + name + " again from");
      return {std::move(file), 0};
    }
    // Linux creates the file first and refuses O_DIRECT second.
    if (direct && lacks_direct(-got)) static_cast<void>(system.unlinkat(directory, name.c_str()));
  }
  return {{}, -got};
}

/// Opens an unnamed file the best way that the directory's file system knows.
///
/// Gives   the file; `direct` is cleared where O_DIRECT was refused; each thing done without is added to `remarks`
/// Errors  io_error for all that is not a missing feature
template <class System>
[[nodiscard]] descriptor open_unnamed(const System& system, const descriptor& directory, bool& direct,
                                      const std::string& path, std::vector<std::string>& remarks) {
  const auto tmpfile = [&](bool with_direct) {
    const int flags = O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC | (with_direct ? O_DIRECT : 0);
    const int got = uninterrupted([&] { return system.openat(directory.get(), ".", flags, 0600); });
    return got < 0 ? opened_file{{}, -got} : opened_file{descriptor{got}, 0};
  };
  const auto without_direct = [&](int error_number) {
    direct = false;
    remarks.push_back(path_text(path) + ": direct I/O is refused (" + errno_name(error_number) +
                      " at open); file bytes go through the page cache");
  };

  opened_file got = tmpfile(direct);
  if (direct && lacks_direct(got.error)) {  // one of two wishes was refused: which?
    opened_file buffered = tmpfile(false);
    if (buffered.error == 0) without_direct(got.error);
    got = std::move(buffered);
  }
  if (got.error != 0 && lacks_unnamed_files(got.error)) {
    const int reason = got.error;
    got = open_and_unlink(system, directory.get(), direct, path);
    if (direct && lacks_direct(got.error)) {
      opened_file buffered = open_and_unlink(system, directory.get(), false, path);
      if (buffered.error == 0) without_direct(got.error);
      got = std::move(buffered);
    }
    if (got.error == 0) {
      remarks.push_back(path_text(path) + ": no unnamed files there (" + errno_name(reason) +
                        " for O_TMPFILE); a file with a random name was made and its name removed at once");
    }
  }
  if (got.error == ENOENT) {  // the directory was opened: it is one that takes no files, as in /proc, or it is gone
    throw io_error(ENOENT, "cannot create a file in directory " + path_text(path) +
                               " (ENOENT); it was removed, or takes no files: give another");
  }
  if (got.error != 0) throw directory_error(got.error, path, "cannot create a file in");
  return std::move(got.file);
}

/// What direct transfers must be multiples of, by statx; where that does not tell, a block that every drive takes.
///
/// Gives   empty where the file system says that it has no direct I/O; a guess is added to `remarks`
template <class System>
[[nodiscard]] std::optional<alignment_rules> direct_rules(const System& system, const descriptor& file,
                                                          const std::string& path, std::vector<std::string>& remarks) {
  struct ::statx about {};
  const int failed = uninterrupted([&] { return system.statx(file.get(), about); });
#ifdef STATX_DIOALIGN
  if (failed == 0 && (about.stx_mask & STATX_DIOALIGN) != 0) {
    alignment_rules rules{about.stx_dio_offset_align, about.stx_dio_mem_align};
    if (rules.offset_bytes == 0) return std::nullopt;
#ifdef STATX_DIO_READ_ALIGN
    // One rule serves both directions: the wider one.
    if ((about.stx_mask & STATX_DIO_READ_ALIGN) != 0) {
      rules.offset_bytes = (std::max)(rules.offset_bytes, std::size_t{about.stx_dio_read_offset_align});
    }
#endif
    if (is_power_of_two(rules.offset_bytes) && is_power_of_two(rules.memory_bytes)) return rules;
  }
#endif
  // Probing cannot find the rule: file systems accept some transfers that their drives do not.
  constexpr std::size_t block_min = 4096;
  constexpr std::size_t block_max = 65536;
  std::size_t block = failed == 0 ? std::size_t{about.stx_blksize} : block_min;
  if (!is_power_of_two(block) || block > block_max) block = block_min;
  block = (std::max)(block, block_min);
  remarks.push_back(path_text(path) + ": the system does not tell the alignment of direct I/O there; " +
                    format_bytes(block) + " is assumed, the file system's block");
  return alignment_rules{block, block};
}

/// Writes and reads one block by the rules, and leaves the file empty.
///
/// Gives   0 or errno; a transfer that moves a part of the block counts as EINVAL
template <class System>
[[nodiscard]] int probe_direct(const System& system, const descriptor& file, const alignment_rules& rules) {
  const aligned_bytes block{rules.offset_bytes, (std::max)(rules.offset_bytes, rules.memory_bytes)};
  const auto error_of = [&](std::int64_t moved) {
    if (moved < 0) return static_cast<int>(-moved);
    return moved == static_cast<std::int64_t>(rules.offset_bytes) ? 0 : EINVAL;
  };
  int error = error_of(uninterrupted([&] { return system.pwrite(file.get(), block.data(), rules.offset_bytes, 0); }));
  if (error == 0) {
    error = error_of(uninterrupted([&] { return system.pread(file.get(), block.data(), rules.offset_bytes, 0); }));
  }
  if (error == 0) error = -uninterrupted([&] { return system.ftruncate(file.get(), 0); });
  return error;
}

}  // namespace vtier::io::detail
