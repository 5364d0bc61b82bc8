// SPDX-License-Identifier: Apache-2.0
// However a process ends, it ends cleanly and leaves nothing behind (VO-D08, VO-B08), and so does a child that it has
// forked (VO-C07). Each way is a run of this very program, which is started again with the hidden test case below.

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <vtier/device/host.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/runtime/hierarchy.hpp>

#include "support/catch.hpp"
#include "support/host_hierarchy.hpp"
#include "support/scratch_directory.hpp"
#include "support/tensors.hpp"
#include "support/traffic.hpp"

namespace {

using namespace vtier::literals;
using vtier::role;

/// A hierarchy with traffic to its files under way.
struct world {
  explicit world(const std::string& directory)
      : mem{vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::pinned{{.budget = 1_MiB}},
            vtier::mapped_file{directory, {.budget = 32_MiB}}},
        stream{gpu.make_stream()} {
    for (std::size_t i = 0; i < 20; ++i) {
      tensors.push_back(mem.make_tensor<std::uint8_t>({300'000}, role::parameter));
      vtier::test::fill(gpu, stream, tensors.back(), i);
    }
    for (auto& t : tensors) mem.prefetch(t);
  }
  vtier::host::device gpu;
  vtier::hierarchy<vtier::host::device> mem;
  vtier::host::stream stream;
  std::vector<vtier::hierarchy<vtier::host::device>::tensor<std::uint8_t>> tensors;
};

struct result {
  int status = 0;
  std::string errors;  // what the child wrote to stderr
};

void add_option(const char* variable, const std::string& option) {
  const char* const before = std::getenv(variable);
  ::setenv(variable, (before == nullptr ? option : before + (":" + option)).c_str(), 1);
}

result run_again(const std::string& mode, const std::string& directory) {
  int ends[2] = {-1, -1};
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(ends[1], STDERR_FILENO);
    ::close(ends[0]);
    ::setenv("VTIER_EXIT_MODE", mode.c_str(), 1);
    ::setenv("VTIER_EXIT_DIRECTORY", directory.c_str(), 1);
    if (mode.starts_with("forked")) {
      // A forked child leaves what belongs to its parent's threads as it is, which is not what a leak is; nor need each
      // of many children wait a second at its end.
      add_option("ASAN_OPTIONS", "detect_leaks=0");
      add_option("TSAN_OPTIONS", "atexit_sleep_ms=0");
    }
    ::execl("/proc/self/exe", "exit", "a process that ends", "-o", "/dev/null", nullptr);
    ::_exit(127);
  }
  ::close(ends[1]);
  result r;
  char buffer[512];
  for (ssize_t n = 0; (n = ::read(ends[0], buffer, sizeof buffer)) > 0;)
    r.errors.append(buffer, static_cast<std::size_t>(n));
  ::close(ends[0]);
  REQUIRE(::waitpid(child, &r.status, 0) == child);
  return r;
}

/// Forks again and again while the world is busy; each child ends in a way of its own, and must end with 0. Gives the
/// exit status of the parent: whether all children did, and every byte of the parent is right.
int fork_often(std::optional<world>& w, const std::string& way) {
  for (int i = 0; i < 5; ++i) {
    for (auto& t : w->tensors) w->mem.prefetch(t);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);  // what hangs is an error too
      if (way == "exit") std::exit(0);
      if (way == "_exit") ::_exit(0);
      if (way == "quick_exit") std::quick_exit(0);
      if (way == "exec") {
        ::unsetenv("VTIER_EXIT_MODE");  // the hidden test has nothing to do then
        ::execl("/proc/self/exe", "exit", "a process that ends", "-o", "/dev/null", nullptr);
      }
      if (way == "return") {
        w.reset();
        std::exit(0);
      }
      if (way == "thread" && !vtier::test::threads_after_fork) std::exit(0);
      if (way == "thread") {
        std::thread{[] { std::exit(0); }}.detach();
        for (;;) ::pause();
      }
      std::exit(3);
    }
    for (std::size_t k = 0; k < w->tensors.size(); k += 3) {
      if (vtier::test::differences(w->gpu, w->stream, w->tensors[k], k) != 0) return 4;
    }
    int status = 0;
    if (::waitpid(child, &status, 0) != child || status != 0) return 5;
  }
  return 0;
}

}  // namespace

TEST_CASE("a process that ends", "[.]") {
  const char* const mode_text = std::getenv("VTIER_EXIT_MODE");
  const char* const directory = std::getenv("VTIER_EXIT_DIRECTORY");
  if (mode_text == nullptr || directory == nullptr) return;
  const std::string mode = mode_text;
  if (mode == "static") {
    static world w{directory};
    std::exit(0);
  } else if (mode == "thread_local lease") {
    static world w{directory};
    thread_local auto lease = w.tensors[3].read(w.stream);
    std::exit(lease.size() == 300'000 ? 0 : 1);
  } else if (mode == "second thread") {
    static world w{directory};
    std::thread{[] { std::exit(0); }}.detach();
    for (;;) ::pause();
  } else if (mode == "quick_exit") {
    static world w{directory};
    std::quick_exit(0);
  } else if (mode == "scope") {
    world w{directory};
  } else if (mode == "killed") {
    world w{directory};
    ::raise(SIGKILL);
  } else if (mode == "terminated") {
    world w{directory};
    ::signal(SIGTERM, SIG_DFL);
    ::raise(SIGTERM);
  } else if (mode == "aborted") {
    world w{directory};
    ::signal(SIGABRT, SIG_DFL);
    std::abort();
  } else if (mode == "uncaught") {
    world w{directory};
    ::signal(SIGABRT, SIG_DFL);
    [&w]() noexcept { static_cast<void>(w.mem.make_tensor<std::uint8_t>({1_GiB}, role::parameter)); }();
  } else if (mode == "uncaught in a thread") {
    world w{directory};
    ::signal(SIGABRT, SIG_DFL);
    std::thread{[&w] { static_cast<void>(w.mem.make_tensor<std::uint8_t>({1_GiB}, role::parameter)); }}.join();
  } else if (mode.starts_with("forked ")) {
    static std::optional<world> w;
    w.emplace(directory);
    thread_local const auto lease = w->tensors[3].read(w->stream);
    std::exit(lease.size() == 300'000 ? fork_often(w, mode.substr(7)) : 1);
  } else {
    std::exit(2);
  }
}

TEST_CASE("every clean way out ends with 0, silently, and leaves no file") {
  vtier::test::scratch_directory directory;
  for (const char* mode : {"static", "thread_local lease", "second thread", "quick_exit", "scope"}) {
    for (int i = 0; i < 20; ++i) {
      CAPTURE(mode, i);
      const result r = run_again(mode, directory.path());
      CAPTURE(r.errors);
      REQUIRE(WIFEXITED(r.status));
      REQUIRE(WEXITSTATUS(r.status) == 0);
      REQUIRE(r.errors.empty());
      REQUIRE(directory.empty());
    }
  }
}

TEST_CASE("a process that is killed leaves no file and no space taken") {
  // On a disk of the test's own, where what is free is nobody else's doing.
  const int code = vtier::test::on_own_disk(128_MiB, [](vtier::test::own_disk& disk) {
    for (const char* mode : {"killed", "terminated", "aborted", "uncaught", "uncaught in a thread"}) {
      for (int i = 0; i < 10; ++i) {
        const result r = run_again(mode, disk.path());
        if (!WIFSIGNALED(r.status) || !disk.is_clean()) {
          std::fprintf(stderr, "%s, run %d, status %d, clean %d\n%s", mode, i, r.status, disk.is_clean() ? 1 : 0,
                       r.errors.c_str());
          return 1;
        }
      }
    }
    for (const char* mode : {"static", "second thread", "quick_exit"}) {
      const result r = run_again(mode, disk.path());
      if (r.status != 0 || !disk.is_clean()) return 2;
    }
    world again{disk.path()};  // and the next run needs no clean-up
    return vtier::test::differences(again.gpu, again.stream, again.tensors[5], 5) == 0 ? 0 : 3;
  });
  CHECK(code == 0);
}

TEST_CASE("whichever way a forked child ends, it ends at once with 0, and its parent goes on (VO-C07)") {
  vtier::test::scratch_directory directory;
  for (const char* mode :
       {"forked exit", "forked _exit", "forked quick_exit", "forked exec", "forked return", "forked thread"}) {
    for (int i = 0; i < 3; ++i) {
      CAPTURE(mode, i);
      const result r = run_again(mode, directory.path());
      CAPTURE(r.errors, r.status);
      REQUIRE(WIFEXITED(r.status));
      REQUIRE(WEXITSTATUS(r.status) == 0);
      REQUIRE(r.errors.empty());
      REQUIRE(directory.empty());
    }
  }
}
