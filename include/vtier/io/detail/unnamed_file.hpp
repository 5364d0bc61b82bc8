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
#include <filesystem>
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

/// What came of opening: a descriptor, and the errno for which O_DIRECT was given up (0: it was not).
struct opened_file {
  descriptor file;
  int direct_refused = 0;
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
    case ENOENT: advice = path.empty() ? "the name is empty: give a directory" : "make the directory first, or give another"; break;
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
  return {error_number, doing + " directory " + quoted(path) + " (" + errno_name(error_number) + "); " + advice};
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
  int got = path.find('\0') != std::string::npos
                ? -EINVAL
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
/// Gives   a descriptor or -errno
/// Errors  io_error where the name could not be taken away again: it names the file that is left
template <class System>
[[nodiscard]] int open_and_unlink(const System& system, int directory, int direct_flag, const std::string& path) {
  constexpr int attempts_max = 16;
  int got = -EEXIST;
  for (int attempt = 0; attempt < attempts_max && got == -EEXIST; ++attempt) {
    std::string name = ".vtier-";
    for (int half = 0; half < 2; ++half) {
      std::uint64_t bits = 0;
      if (const int failed = uninterrupted([&] { return system.random(bits); }); failed < 0) return failed;
      for (int digit = 0; digit < 16; ++digit, bits >>= 4U) name += "0123456789abcdef"[bits & 15U];
    }
    got = uninterrupted([&] {
      return system.openat(directory, name.c_str(),
                           O_CREAT | O_EXCL | O_NOFOLLOW | O_RDWR | O_CLOEXEC | direct_flag, 0600);
    });
    if (got >= 0) {
      descriptor file{got};
      const int failed = uninterrupted([&] { return system.unlinkat(directory, name.c_str()); });
      if (failed < 0) throw directory_error(-failed, path, "cannot remove " + name + " again from");
      descriptor keep{std::move(file)};
      return ::fcntl(keep.get(), F_DUPFD_CLOEXEC, 0);
    }
    // Linux creates the file first and refuses O_DIRECT second.
    if (direct_flag != 0 && lacks_direct(-got)) static_cast<void>(system.unlinkat(directory, name.c_str()));
  }
  return got;
}

}  // namespace vtier::io::detail
