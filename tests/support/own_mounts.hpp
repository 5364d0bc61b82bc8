// SPDX-License-Identifier: Apache-2.0
#pragma once

// Disks of a test's own making: a child process in its own user and mount namespace mounts what it likes, and nobody
// else sees it.

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

namespace vtier::test {

/// Moves the process into namespaces of its own; false where the system does not allow that. Only in a child.
inline bool enter_own_mounts() {
  const auto user = ::geteuid();
  const auto group = ::getegid();
  const auto write_text = [](const char* path, std::string_view text) {
    const int file = ::open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0) return false;
    const bool written = ::write(file, text.data(), text.size()) == static_cast<::ssize_t>(text.size());
    ::close(file);
    return written;
  };
  const auto hide_mounts = [] { return ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0; };
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) {
    return ::unshare(CLONE_NEWNS) == 0 && hide_mounts();  // root needs no user namespace
  }
  if (!write_text("/proc/self/uid_map", "0 " + std::to_string(user) + " 1")) return false;
  if (!write_text("/proc/self/setgroups", "deny")) return false;
  if (!write_text("/proc/self/gid_map", "0 " + std::to_string(group) + " 1")) return false;
  return hide_mounts();
}

/// Mounts an empty disk of a size over a directory, after enter_own_mounts().
inline bool mount_disk(const std::filesystem::path& directory, std::size_t size_bytes) {
  return ::mount("tmpfs", directory.c_str(), "tmpfs", 0, ("size=" + std::to_string(size_bytes)).c_str()) == 0;
}

/// Mounts a directory over itself so that nothing can be written there, after enter_own_mounts().
inline bool mount_read_only(const std::filesystem::path& directory) {
  return ::mount(directory.c_str(), directory.c_str(), nullptr, MS_BIND, nullptr) == 0 &&
         ::mount(nullptr, directory.c_str(), nullptr, MS_BIND | MS_REMOUNT | MS_RDONLY, nullptr) == 0;
}

/// What is free on the disk of a directory.
inline std::size_t free_disk_bytes(const std::filesystem::path& directory) {
  struct ::statvfs about {};
  if (::statvfs(directory.c_str(), &about) != 0) return 0;
  return about.f_bavail * about.f_frsize;
}

/// Waits until what is free there is as `enough` wants it; false where that does not come to be. What a process that
/// was killed had in flight in a ring goes after it: the kernel closes its files some moments after the parent was
/// told.
template <class Enough>
bool wait_for_free_disk(const std::filesystem::path& directory, Enough&& enough) {
  for (int attempt = 0; attempt < 30'000; ++attempt) {
    if (enough(free_disk_bytes(directory))) return true;
    ::usleep(1000);
  }
  return false;
}

/// Waits until exactly so much is free there again.
inline bool disk_is_free_again(const std::filesystem::path& directory, std::size_t size_bytes) {
  return wait_for_free_disk(directory, [=](std::size_t free_bytes) { return free_bytes == size_bytes; });
}

/// Waits until at least so much is free there.
inline bool disk_has_free(const std::filesystem::path& directory, std::size_t size_bytes) {
  return wait_for_free_disk(directory, [=](std::size_t free_bytes) { return free_bytes >= size_bytes; });
}

}  // namespace vtier::test
