// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a piece of code does to its process, found out in a child: abort, be killed, change its user or its limits.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

namespace vtier::test {

/// Whether a forked child may start threads where its parent had some: ThreadSanitizer ends it for that.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool threads_after_fork = false;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
inline constexpr bool threads_after_fork = false;
#else
inline constexpr bool threads_after_fork = true;
#endif
#else
inline constexpr bool threads_after_fork = true;
#endif

/// How a child process ended.
struct child_end {
  int exit_status = -1;  // -1 where a signal ended it
  int signal = 0;        // 0 where it ended by itself
  std::string text;      // what it wrote to stderr

  /// Whether an assertion of vtier ended it whose message has this text.
  [[nodiscard]] bool asserted(std::string_view words) const {
    return signal == SIGABRT && text.find("vtier: ") != std::string::npos && text.find(words) != std::string::npos;
  }
};

/// Runs a function in a forked child and waits for its end.
///
/// Gives   exit status 0 for true or nothing, 1 for false, 2 for an exception (its text is in `text`)
template <class Function>
child_end in_child(Function&& function) {
  int ends[2] = {-1, -1};
  if (::pipe(ends) != 0) throw std::runtime_error("no pipe for a test");
  std::fflush(nullptr);
  const ::pid_t child = ::fork();
  if (child < 0) throw std::runtime_error("no process for a test");
  if (child == 0) {
    for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTERM, SIGINT}) std::signal(number, SIG_DFL);
    const ::rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::close(ends[1]);
    int status = 0;
    try {
      if constexpr (requires { static_cast<bool>(function()); }) {
        status = function() ? 0 : 1;
      } else {
        function();
      }
    } catch (const std::exception& e) {
      std::fputs(e.what(), stderr);
      status = 2;
    } catch (...) {
      std::fputs("something that is no std::exception", stderr);
      status = 2;
    }
    std::fflush(stderr);
    ::_exit(status);
  }
  ::close(ends[1]);
  child_end end;
  char buffer[512];
  for (::ssize_t got = 0; (got = ::read(ends[0], buffer, sizeof buffer)) > 0;) {
    end.text.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status)) end.exit_status = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) end.signal = WTERMSIG(status);
  return end;
}

}  // namespace vtier::test
