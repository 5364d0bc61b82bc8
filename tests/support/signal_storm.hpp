// SPDX-License-Identifier: Apache-2.0
#pragma once

// Signals that interrupt system calls, every millisecond.

#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <thread>

namespace vtier::test {

/// A signal every millisecond for the process, while it lives: the kernel gives it to the main thread where that takes
/// signals.
class signal_storm {
 public:
  signal_storm() {
    struct ::sigaction quiet {};  // without SA_RESTART
    quiet.sa_handler = [](int) { ++caught; };
    ::sigaction(SIGALRM, &quiet, &before_);
    const ::itimerval often{{0, 1000}, {0, 1000}};
    ::setitimer(ITIMER_REAL, &often, nullptr);
  }
  signal_storm(const signal_storm&) = delete;
  signal_storm& operator=(const signal_storm&) = delete;
  ~signal_storm() {
    const ::itimerval never{};
    ::setitimer(ITIMER_REAL, &never, nullptr);
    ::sigaction(SIGALRM, &before_, nullptr);
  }

  /// How many were caught so far, by all threads of the process.
  [[nodiscard]] static std::uint64_t count() noexcept { return caught; }

 private:
  inline static std::atomic<std::uint64_t> caught{0};
  struct ::sigaction before_ {};
};

/// The same, and one for each thread of the process.
class signal_storm_in_all_threads {
 public:
  signal_storm_in_all_threads() : sender_{[this] { send(); }} {}
  signal_storm_in_all_threads(const signal_storm_in_all_threads&) = delete;
  signal_storm_in_all_threads& operator=(const signal_storm_in_all_threads&) = delete;
  ~signal_storm_in_all_threads() {
    over_ = true;
    sender_.join();
  }

 private:
  void send() const {
    const auto self = ::syscall(SYS_gettid);
    while (!over_) {
      std::error_code ended;  // threads come and go
      for (const auto& task : std::filesystem::directory_iterator{"/proc/self/task", ended}) {
        const long thread = std::strtol(task.path().filename().c_str(), nullptr, 10);
        if (thread != self) ::syscall(SYS_tgkill, ::getpid(), thread, SIGALRM);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds{1});
    }
  }

  signal_storm by_timer_;
  std::atomic<bool> over_{false};
  std::thread sender_;
};

}  // namespace vtier::test
