// SPDX-License-Identifier: Apache-2.0
#pragma once

// Why a machine gives no ring, in words that lead to the setting that is to blame.
//
// A file of its own because it needs no liburing: the errno alone says little, and what else the system shows is read
// here.

#include <sys/resource.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include <vtier/core/bytes.hpp>
#include <vtier/core/config.hpp>
#include <vtier/io/detail/errno_name.hpp>

namespace vtier::io::detail {

/// The number in a file of /proc; empty where it cannot be read.
[[nodiscard]] inline std::optional<long> read_number(const char* path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file{std::fopen(path, "re"),
                                                             [](std::FILE* f) { return std::fclose(f); }};
  long value = 0;
  if (!file || std::fscanf(file.get(), "%ld", &value) != 1) return std::nullopt;
  return value;
}

/// RLIMIT_MEMLOCK for a message: " of 8 MiB"; empty where there is none.
[[nodiscard]] inline std::string locked_memory_limit() {
  struct ::rlimit limit {};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return " of " + format_bytes(limit.rlim_cur);
}

/// Why a ring was probably refused, and what to do; `setting_path` is where the kernel shows kernel.io_uring_disabled.
///
/// Source  the kernel's admin guide, sysctl/kernel: 1 leaves rings to CAP_SYS_ADMIN and one group, 2 to nobody
[[nodiscard]] inline std::string uring_refusal(int error_number,
                                               const char* setting_path = "/proc/sys/kernel/io_uring_disabled") {
  const std::optional<long> disabled = read_number(setting_path);
  std::string setting = "kernel.io_uring_disabled ";
  setting += disabled ? "is " + std::to_string(*disabled) : "cannot be read";
  if (disabled == 1) setting += " (rings for administrators and kernel.io_uring_group only)";
  std::string text = "io_uring cannot be set up (" + errno_name(error_number) + "): ";
  switch (error_number) {
    case EPERM:
    case EACCES:
      return text + setting +
             (disabled && *disabled != 0 ? "; set it to 0 to allow rings"
                                         : "; likely a container's seccomp profile forbids it");
    case ENOSYS: return text + "the kernel has none, or a container's seccomp profile hides it; " + setting;
    case ENOMEM:
      return text + "no memory, or the ring does not fit in the locked memory limit" + locked_memory_limit() +
             ": raise it (ulimit -l)";
    case EMFILE:
    case ENFILE: return text + "too many open files: raise the limit (ulimit -n)";
    default: return text + setting;
  }
}

}  // namespace vtier::io::detail
