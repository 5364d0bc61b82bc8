// SPDX-License-Identifier: Apache-2.0
#pragma once

// Running a piece of a test in a process of its own: another user, other limits, a forbidden system call, a kill.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sched.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <exception>
#include <stdexcept>
#include <string>

namespace vtier::test {

/// What a child answers when this machine does not let it do its part.
inline const std::string cannot_run = "cannot run here: ";

/// Fails a child's part.
inline void need(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error("broken: " + what);
}

/// Runs `part` in a forked child; gives what it returned, what it threw, or the signal that it died of.
template <class Part>
std::string in_child(Part&& part) {
  int ends[2];
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
  const ::pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("no fork");
  if (child == 0) {
    std::string answer;
    try {
      answer = part();
    } catch (const std::exception& e) {
      answer = e.what();
    }
    const auto written = ::write(ends[1], answer.data(), answer.size());
    ::_exit(written == static_cast<::ssize_t>(answer.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string answer;
  char buffer[512];
  for (;;) {
    const ::ssize_t got = ::read(ends[0], buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    answer.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return answer;
}

/// Goes on as an ordinary user; a process that is one already stays what it is.
inline void become_ordinary_user() {
  constexpr ::uid_t nobody = 65534;
  if (::geteuid() != 0) return;
  need(::setgid(nobody) == 0 && ::setuid(nobody) == 0, "setuid");
}

/// Gives this process mounts of its own; false where it may not have them.
inline bool own_mounts() {
  return ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

/// Makes one system call fail with an errno, as a container's profile does.
inline bool forbid(long system_call, int error_number) {
  ::sock_filter code[] = {
      {BPF_LD | BPF_W | BPF_ABS, 0, 0, static_cast<unsigned>(offsetof(::seccomp_data, nr))},
      {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, static_cast<unsigned>(system_call)},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | static_cast<unsigned>(error_number)},
      {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW},
  };
  const ::sock_fprog program{4, code};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace vtier::test
