// SPDX-License-Identifier: Apache-2.0
#pragma once

// A measurement in a process of its own: it begins with nothing left over from the one before, and what it does wrong
// (too long, too much memory, a crash) ends it alone and is told.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include <vtier/core/bytes.hpp>
#include <vtier/core/clock.hpp>

namespace vtier::bench {

/// What cannot be measured here, and why; not a failure.
class skipped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Where a child process is ended.
///
/// Units   bytes of memory that it has touched
struct child_limits {
  double seconds = 60.0;
  std::size_t resident_bytes = std::size_t{4} << 30U;
};

namespace detail {

/// The resident memory of a process; 0 where it is gone.
inline std::size_t resident_bytes_of(::pid_t process) {
  std::ifstream from{"/proc/" + std::to_string(process) + "/statm"};
  std::size_t all = 0;
  std::size_t resident = 0;
  if (!(from >> all >> resident)) return 0;
  return resident * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// A child that is gone afterwards.
class running_child {
 public:
  explicit running_child(::pid_t process) : process_{process} {}
  running_child(const running_child&) = delete;
  running_child& operator=(const running_child&) = delete;
  ~running_child() {
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      wait();
    }
  }
  int wait() {
    int status = 0;
    while (::waitpid(process_, &status, 0) < 0 && errno == EINTR) {
    }
    process_ = -1;
    return status;
  }

 private:
  ::pid_t process_;
};

}  // namespace detail

/// Runs a function in a child process and gives what it returns.
///
/// Needs   one thread in this process; a result that may be copied byte by byte
/// Errors  skipped where the function threw it or a limit ended the child; std::runtime_error for every other end
template <class Function>
auto in_child(const child_limits& limits, Function&& function) {
  using result = std::invoke_result_t<Function>;
  static_assert(std::is_trivially_copyable_v<result>);
  struct message {
    enum kind { value, skip, failure } what = failure;
    char text[512] = {};
    result given{};
  };
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::system_error(errno, std::generic_category(), "pipe");
  std::cout.flush();
  const ::pid_t process = ::fork();
  if (process < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (process == 0) {
    std::ofstream{"/proc/self/oom_score_adj"} << 1000;  // rather this process than another
    message m;
    try {
      m.given = function();
      m.what = message::value;
    } catch (const skipped& reason) {
      m.what = message::skip;
      std::snprintf(m.text, sizeof m.text, "%s", reason.what());
    } catch (const std::exception& problem) {
      std::snprintf(m.text, sizeof m.text, "%s", problem.what());
    }
    const bool written = ::write(ends[1], &m, sizeof m) == static_cast<::ssize_t>(sizeof m);  // less than a pipe holds
    ::_exit(written ? 0 : 1);
  }
  ::close(ends[1]);
  detail::running_child child{process};
  const steady_clock clock;
  const std::int64_t began = clock.now_ns();
  std::string reason;
  for (;;) {
    ::pollfd wanted{ends[0], POLLIN, 0};
    const int ready = ::poll(&wanted, 1, 20);
    if (ready > 0) break;
    if (static_cast<double>(clock.now_ns() - began) * 1e-9 > limits.seconds) {
      reason = "took longer than " + std::to_string(static_cast<int>(limits.seconds)) + " s";
    } else if (detail::resident_bytes_of(process) > limits.resident_bytes) {
      reason = "touched more than " + format_bytes(limits.resident_bytes) + " of memory";
    }
    if (!reason.empty()) {
      ::close(ends[0]);
      throw skipped(reason);
    }
  }
  message m;
  const bool got = ::read(ends[0], &m, sizeof m) == static_cast<::ssize_t>(sizeof m);
  ::close(ends[0]);
  const int status = child.wait();
  if (!got) {
    throw std::runtime_error(WIFSIGNALED(status) ? "ended by signal " + std::to_string(WTERMSIG(status))
                                                 : "ended without a result");
  }
  m.text[sizeof m.text - 1] = '\0';
  if (m.what == message::skip) throw skipped(m.text);
  if (m.what == message::failure) throw std::runtime_error(m.text);
  return m.given;
}

}  // namespace vtier::bench
