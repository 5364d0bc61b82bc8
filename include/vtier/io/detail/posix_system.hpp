// SPDX-License-Identifier: Apache-2.0
#pragma once

// The system calls that files need, as one small struct that a test can replace call by call.
//
// Each member is one call and nothing else; it gives the call's result, or -errno, so that no test has to set errno.

#include <fcntl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include <vtier/core/config.hpp>

namespace vtier::io::detail {

/// The calls themselves.
///
/// Gives   the call's result, or -errno
/// Threads any
struct posix_system {
  /// Opens a directory as a place only, without following a link in its last component.
  [[nodiscard]] int open_directory(const char* path) const noexcept {
    return result(::open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  }
  /// Whether the last component is a symbolic link.
  [[nodiscard]] bool is_link(const char* path) const noexcept {
    struct ::stat about {};
    return ::lstat(path, &about) == 0 && S_ISLNK(about.st_mode);
  }
  [[nodiscard]] int openat(int directory, const char* name, int flags, ::mode_t mode) const noexcept {
    return result(::openat(directory, name, flags, mode));
  }
  [[nodiscard]] int unlinkat(int directory, const char* name) const noexcept {
    return result(::unlinkat(directory, name, 0));
  }
  /// Size, blocks, and where kernel and headers know it the alignment of direct I/O.
  [[nodiscard]] int statx(int file, struct ::statx& about) const noexcept {
    unsigned mask = STATX_BASIC_STATS;
#ifdef STATX_DIOALIGN
    mask |= STATX_DIOALIGN;
#endif
#ifdef STATX_DIO_READ_ALIGN
    mask |= STATX_DIO_READ_ALIGN;
#endif
    return result(::statx(file, "", AT_EMPTY_PATH, mask, &about));
  }
  [[nodiscard]] int fallocate(int file, int mode, std::size_t offset_bytes, std::size_t size_bytes) const noexcept {
    return result(::fallocate(file, mode, static_cast<::off_t>(offset_bytes), static_cast<::off_t>(size_bytes)));
  }
  [[nodiscard]] int ftruncate(int file, std::size_t size_bytes) const noexcept {
    return result(::ftruncate(file, static_cast<::off_t>(size_bytes)));
  }
  [[nodiscard]] int fdatasync(int file) const noexcept { return result(::fdatasync(file)); }
  [[nodiscard]] std::int64_t pread(int file, std::byte* target, std::size_t size_bytes,
                                   std::size_t offset_bytes) const noexcept {
    return result(::pread(file, target, size_bytes, static_cast<::off_t>(offset_bytes)));
  }
  [[nodiscard]] std::int64_t pwrite(int file, const std::byte* source, std::size_t size_bytes,
                                    std::size_t offset_bytes) const noexcept {
    return result(::pwrite(file, source, size_bytes, static_cast<::off_t>(offset_bytes)));
  }
  /// What this user can still write on the file's file system, in bytes; empty where it does not say.
  [[nodiscard]] std::optional<std::size_t> free_bytes(int file) const noexcept {
    struct ::statvfs about {};
    if (::fstatvfs(file, &about) != 0) return std::nullopt;
    return std::size_t{about.f_bavail} * std::size_t{about.f_frsize};
  }
  /// RLIMIT_FSIZE, in bytes: growing a file beyond it is a signal, not an error.
  [[nodiscard]] std::size_t file_bytes_max() const noexcept {
    struct ::rlimit limit {};
    if (::getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
      return (std::numeric_limits<std::size_t>::max)();
    }
    return std::size_t{limit.rlim_cur};
  }
  /// Fills `bits` with numbers that nobody can guess.
  [[nodiscard]] int random(std::uint64_t& bits) const noexcept {
    const ::ssize_t got = ::getrandom(&bits, sizeof bits, 0);
    if (got < 0) return -errno;
    return got == static_cast<::ssize_t>(sizeof bits) ? 0 : -EIO;
  }

 private:
  template <class Number>
  [[nodiscard]] static Number result(Number returned) noexcept {
    return returned < 0 ? Number{-errno} : returned;
  }
};

/// Repeats a call for as long as a signal interrupts it.
///
/// Gives   the first result that is not -EINTR
template <class Call>
[[nodiscard]] auto uninterrupted(Call&& call) {
  for (;;) {
    const auto result = call();
    if (result != -EINTR) return result;
  }
}

}  // namespace vtier::io::detail
