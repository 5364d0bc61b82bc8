// SPDX-License-Identifier: Apache-2.0
// Processes that are killed at any moment, that share a directory, that fork, that get no threads.

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/random_source.hpp>
#include <vtier/device/host.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/numa.hpp>
#include <vtier/runtime/hierarchy.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/own_mounts.hpp"
#include "support/scratch_directory.hpp"
#include "support/tensors.hpp"

namespace {

using namespace vtier::literals;
using vtier::role;
using vtier::test::differences;
using vtier::test::fill;
using vtier::test::in_child;

/// A hierarchy whose tensors are four times as large as its memory, so that there is always traffic with files.
struct traffic {
  explicit traffic(const std::filesystem::path& directory, std::uint64_t s = 1)
      : seed{s},
        mem{vtier::hbm{gpu, {.budget = 512_KiB}}, vtier::numa{{.budget = 512_KiB, .name = "dram"}},
            vtier::mapped_file{directory.string(), {.budget = 8_MiB}}},
        stream{gpu.make_stream()},
        random{s} {
    for (std::size_t i = 0; i < 30; ++i) {
      tensors.push_back(mem.make_tensor<std::uint8_t>({100'000 + i * 37}, role::parameter));
      content.push_back(seed * 1000 + i);
      fill(gpu, stream, tensors.back(), content.back());
    }
  }

  /// One access; gives how many bytes were wrong.
  std::size_t step() {
    const std::size_t i = random.below(tensors.size());
    mem.prefetch(tensors[random.below(tensors.size())]);
    const std::size_t wrong = differences(gpu, stream, tensors[i], content[i]);
    if (random.below(2) == 0) {
      content[i] = random();
      fill(gpu, stream, tensors[i], content[i]);
    }
    return wrong;
  }
  std::size_t steps(int count) {
    std::size_t wrong = 0;
    for (int i = 0; i < count; ++i) wrong += step();
    return wrong;
  }

  std::uint64_t seed;
  vtier::host::device gpu;
  vtier::hierarchy<vtier::host::device> mem;
  vtier::host::stream stream;
  vtier::random_source random;
  std::vector<vtier::hierarchy<vtier::host::device>::tensor<std::uint8_t>> tensors;
  std::vector<std::uint64_t> content;
};

/// A child that makes traffic and says so by a byte for each step, until it is killed.
struct worker {
  worker(const std::filesystem::path& directory, std::uint64_t seed) {
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe for a test");
    child = ::fork();
    if (child < 0) throw std::runtime_error("no process for a test");
    if (child > 0) {
      ::close(ends[1]);
      return;
    }
    ::close(ends[0]);
    try {
      traffic t{directory, seed};
      for (;;) {
        const char byte = t.step() == 0 ? '.' : 'X';
        if (::write(ends[1], &byte, 1) != 1) ::_exit(4);
      }
    } catch (...) {
      ::_exit(3);
    }
  }
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;
  ~worker() {
    if (child > 0) kill();
  }

  /// Waits for so many steps; false where bytes were wrong or the child has ended.
  [[nodiscard]] bool waits_for(std::uint64_t steps) const {
    for (std::uint64_t i = 0; i < steps; ++i) {
      char byte = 0;
      if (::read(ends[0], &byte, 1) != 1 || byte != '.') return false;
    }
    return true;
  }

  int kill() {
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    ::close(ends[0]);
    child = -1;
    return status;
  }

  ::pid_t child = -1;
  int ends[2] = {-1, -1};
};

constexpr int skipped = 77;

/// Runs `act(directory)` in a child with a disk of its own, so that what is free there can be counted.
template <class Act>
int on_own_disk(Act&& act) {
  const vtier::test::scratch_directory directory;
  const auto end = in_child([&] {
    if (!vtier::test::enter_own_mounts() || !vtier::test::mount_disk(directory.path(), 64_MiB)) ::_exit(skipped);
    const int code = act(directory.path());
    ::_exit(code);
  });
  INFO(end.text);
  return end.signal != 0 ? 1000 + end.signal : end.exit_status;
}

bool was_skipped(int code) {
  if (code != skipped) return false;
  WARN("skipped: this machine allows no mounts of a test's own");
  return true;
}

}  // namespace

TEST_CASE("a process that is killed at any moment leaves nothing, and the next one starts (VO-B08)", "[cases]") {
  const int code = on_own_disk([](const std::filesystem::path& disk) {
    const std::size_t free_before = vtier::test::free_disk_bytes(disk);
    vtier::random_source random{2026};
    for (int round = 0; round < 20; ++round) {
      {
        worker w{disk, static_cast<std::uint64_t>(round)};
        // Half of them before the first step: while the hierarchy and its files come into being.
        if (round % 2 == 0) {
          if (!w.waits_for(random.below(40))) return 10;
        }
        ::usleep(static_cast<unsigned>(random.below(round % 2 == 0 ? 700 : 4000)));
        const int status = w.kill();
        if (!WIFSIGNALED(status)) return 11;
      }
      if (!std::filesystem::is_empty(disk)) return 12;
      if (!vtier::test::disk_is_free_again(disk, free_before)) return 13;
    }
    traffic again{disk, 1};
    return again.steps(100) == 0 ? 0 : 14;
  });
  if (!was_skipped(code)) CHECK(code == 0);
}

TEST_CASE("of two processes in one directory one is killed, and the other does not notice (VO-B07)", "[cases]") {
  const int code = on_own_disk([](const std::filesystem::path& disk) {
    const std::size_t free_before = vtier::test::free_disk_bytes(disk);
    {
      worker stays{disk, 1};
      vtier::random_source random{7};
      for (std::uint64_t round = 0; round < 8; ++round) {
        worker goes{disk, 100 + round};
        if (!stays.waits_for(20) || !goes.waits_for(1 + random.below(20))) return 10;
        goes.kill();
      }
      if (!stays.waits_for(100)) return 11;
      stays.kill();
    }
    if (!std::filesystem::is_empty(disk)) return 12;
    return vtier::test::disk_is_free_again(disk, free_before) ? 0 : 13;
  });
  if (!was_skipped(code)) CHECK(code == 0);
}

TEST_CASE("two hierarchies of one process in one directory never see each other's bytes (VO-B07)", "[cases]") {
  const vtier::test::scratch_directory directory;
  traffic one{directory.path(), 1};
  traffic two{directory.path(), 2};
  std::size_t wrong = 0;
  for (int round = 0; round < 200; ++round) wrong += one.step() + two.step();
  CHECK(wrong == 0);
  CHECK(directory.empty());
}

TEST_CASE("a forked child ends without a trace, and a call there is an error (VO-C07)", "[cases]") {
  const vtier::test::scratch_directory directory;
  auto parent = std::make_unique<traffic>(directory.path());
  CHECK(parent->steps(20) == 0);
  // Objects that die in the child: nothing is joined, freed or waited for there.
  const auto drops = in_child([&] {
    ::alarm(60);
    parent.reset();
  });
  CAPTURE(drops.text, drops.signal);
  CHECK(drops.exit_status == 0);
  const auto leaves = in_child([] { std::_Exit(0); });
  CHECK(leaves.exit_status == 0);
  const auto calls = in_child([&] {
    ::alarm(60);
    int refused = 0;
    const auto attempt = [&](auto&& call) {
      try {
        call();
      } catch (const vtier::usage_error& e) {
        if (std::string{e.what()}.find("forked") != std::string::npos) ++refused;
      }
    };
    attempt([&] { static_cast<void>(parent->mem.make_tensor<std::uint8_t>({1}, role::parameter)); });
    attempt([&] { static_cast<void>(parent->tensors[0].read(parent->stream)); });
    attempt([&] { static_cast<void>(parent->tensors[0].write(vtier::on_host)); });
    attempt([&] { static_cast<void>(parent->tensors[0].try_read(parent->stream)); });
    attempt([&] { parent->mem.prefetch(parent->tensors[0]); });
    attempt([&] { parent->mem.evict(parent->tensors[0]); });
    attempt([&] { parent->mem.flush(parent->tensors[0]); });
    attempt([&] { static_cast<void>(parent->mem.step()); });
    attempt([&] { static_cast<void>(parent->mem.count()); });
    attempt([&] { parent->gpu.synchronize(parent->stream); });  // no thread would ever do it
    return refused == 10;
  });
  CAPTURE(calls.text);
  CHECK(calls.exit_status == 0);
  // A hierarchy of the child's own works beside.
  CHECK(in_child([&] {
          traffic own{directory.path(), 5};
          return own.steps(20) == 0;
        }).exit_status == 0);
  CHECK(parent->steps(100) == 0);
  parent.reset();
  CHECK(directory.empty());
}

TEST_CASE("threads that do not start are errors that say so, and give everything back", "[cases]") {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  WARN("skipped: the sanitizers start threads of their own");
#else
  if (::geteuid() != 0) {
    WARN("skipped: only root can become a user who has no threads yet");
    return;
  }
  const vtier::test::scratch_directory directory;
  std::filesystem::permissions(directory.path(), std::filesystem::perms::all);
  std::size_t refused = 0;
  std::size_t worked = 0;
  for (::rlim_t more = 0; more <= 12; ++more) {
    CAPTURE(more);
    const auto end = in_child([&] {
      ::alarm(60);
      constexpr ::uid_t nobody = 65'534 - 77;  // hardly anybody else's
      if (::setgid(nobody) != 0 || ::setuid(nobody) != 0) return skipped == 0;
      const ::rlimit limit{1 + more, 1 + more};
      if (::setrlimit(RLIMIT_NPROC, &limit) != 0) ::_exit(skipped);
      int code = 0;
      try {
        const vtier::host::device gpu;
        vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 64_KiB}}, vtier::numa{{.budget = 64_KiB, .name = "dram"}},
                             vtier::mapped_file{directory.path().string(),
                                                {.budget = 1_MiB, .engine = vtier::io::engine_kind::threads}}};
        const auto s = gpu.make_stream();
        auto t = mem.make_tensor<std::uint8_t>({1000}, role::parameter);
        fill(gpu, s, t, 1);
        if (differences(gpu, s, t, 1) != 0) code = 1;
      } catch (const vtier::error& e) {
        code = std::string{e.what()}.find("thread") != std::string::npos ? 2 : 3;
      }
      std::size_t threads = 0;
      for (const auto& entry : std::filesystem::directory_iterator{"/proc/self/task"})
        threads += entry.exists() ? 1 : 0;
      ::_exit(threads == 1 ? code : 4);
    });
    CAPTURE(end.text, end.signal);
    if (end.exit_status == skipped) {
      WARN("skipped: the number of threads cannot be limited here");
      return;
    }
    REQUIRE(end.signal == 0);
    const bool fine = end.exit_status == 0 || end.exit_status == 2;
    REQUIRE(fine);
    (end.exit_status == 0 ? worked : refused) += 1;
    CHECK(directory.empty());
  }
  CHECK(refused > 3);
  CHECK(worked > 0);
#endif
}

TEST_CASE("no name that a user gives becomes part of a path (VO-B11)", "[cases]") {
  const vtier::test::scratch_directory directory;
  const vtier::host::device gpu;
  const auto s = gpu.make_stream();
  std::string with_null = "a";
  with_null += '\0';
  with_null += "b\n";
  for (const std::string& name :
       {std::string(300, 'n'), std::string{"../../up/and/away"}, std::string{"/"}, with_null}) {
    vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 256_KiB, .name = name}},
                         vtier::mapped_file{directory.path().string(), {.budget = 64_MiB, .name = name}}};
    std::vector<decltype(mem)::tensor<std::uint8_t>> many;
    for (std::uint64_t i = 0; i < 5000; ++i) {
      many.push_back(mem.make_tensor<std::uint8_t>({100}, role::optimizer));
      if (i % 50 == 0) fill(gpu, s, many.back(), i);
    }
    std::size_t wrong = 0;
    for (std::uint64_t i = 0; i < 5000; i += 50) wrong += differences(gpu, s, many[i], i);
    CHECK(wrong == 0);
    CHECK(directory.empty());
    try {
      static_cast<void>(mem.make_tensor<std::uint8_t>({100_MiB}, role::optimizer));
      FAIL("nothing was thrown");
    } catch (const vtier::out_of_memory& e) {
      CHECK(e.tier() == name);
    }
  }
}
