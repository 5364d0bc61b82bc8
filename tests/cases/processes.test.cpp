// SPDX-License-Identifier: Apache-2.0
// Processes that are killed at any moment, that share a directory, that fork; names that no path may hold.

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/error.hpp>
#include <vtier/core/random_source.hpp>
#include <vtier/device/host.hpp>
#include <vtier/io/engine_options.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/observe/report.hpp>
#include <vtier/runtime/hierarchy.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/host_hierarchy.hpp"
#include "support/own_mounts.hpp"
#include "support/process_memory.hpp"
#include "support/scratch_directory.hpp"
#include "support/tensors.hpp"
#include "support/traffic.hpp"

namespace {

using namespace vtier::literals;
using vtier::role;
using vtier::io::engine_kind;
using vtier::test::differences;
using vtier::test::fill;
using vtier::test::in_child;
using vtier::test::on_own_disk;
using vtier::test::own_disk;
using vtier::test::traffic;
using vtier::test::worker;

/// Waits for a child; whether it left with this exit status.
bool left_with(::pid_t child, int status_wanted) {
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == status_wanted;
}

bool is_one_line(const std::string& text) {
  return std::none_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20U; });
}

}  // namespace

TEST_CASE("a process that is killed at any moment leaves nothing, and the next one starts (VO-B08)", "[cases]") {
  for (const engine_kind engine : {engine_kind::automatic, engine_kind::threads}) {
    const int code = on_own_disk(64_MiB, [&](own_disk& disk) {
      vtier::random_source random{2026};
      for (int round = 0; round < 20; ++round) {
        {
          worker w{disk.path(), static_cast<std::uint64_t>(round), engine};
          // Half of them before the first step: while the hierarchy and its files come into being.
          const bool running = round % 2 == 0;
          if (running && !w.waits_for(1 + random.below(40))) return 10;
          ::usleep(static_cast<unsigned>(random.below(running ? 700 : 4000)));
          const int status = w.kill();
          if (!WIFSIGNALED(status)) return 11;
        }
        if (!disk.is_clean()) return 12;
      }
      traffic again{disk.path(), 1, engine};
      return again.steps(100) == 0 ? 0 : 13;
    });
    CHECK(code == 0);
  }
}

TEST_CASE("of two processes in one directory one is killed, and the other does not notice (VO-B07)", "[cases]") {
  const int code = on_own_disk(64_MiB, [](own_disk& disk) {
    {
      worker stays{disk.path(), 1};
      vtier::random_source random{7};
      for (std::uint64_t round = 0; round < 8; ++round) {
        worker goes{disk.path(), 100 + round};
        if (!stays.waits_for(20) || !goes.waits_for(1 + random.below(20))) return 10;
        goes.kill();
      }
      if (!stays.waits_for(100)) return 11;
      stays.kill();
    }
    return disk.is_clean() ? 0 : 12;
  });
  CHECK(code == 0);
}

TEST_CASE("two processes in one directory never see each other's bytes (VO-B07)", "[cases]") {
  const int code = on_own_disk(64_MiB, [](own_disk& disk) {
    {
      worker one{disk.path(), 1};
      worker two{disk.path(), 2};
      for (int round = 0; round < 200; ++round) {
        if (!one.waits_for(1) || !two.waits_for(1)) return 10;
        if (!std::filesystem::is_empty(disk.path())) return 11;  // no names, so that none can be the same
      }
    }
    return disk.is_clean() ? 0 : 12;
  });
  CHECK(code == 0);
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

TEST_CASE("a disk that another process has filled is an error, and room again once that one is gone (VO-B07)",
          "[cases]") {
  const int code = on_own_disk(12_MiB, [](own_disk& disk) {
    if (!disk.exact()) return 77;
    const std::size_t empty_bytes = vtier::test::free_disk_bytes(disk.path());
    worker other{disk.path(), 1};  // 3 MiB, of which a part is in files
    if (!other.waits_for(50)) return 10;
    const std::size_t others_bytes = empty_bytes - vtier::test::free_disk_bytes(disk.path());
    vtier::host::device gpu;
    vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 512_KiB}}, vtier::pinned{{.budget = 512_KiB}},
                         vtier::mapped_file{disk.path().string(), {.budget = 64_MiB}}};
    const auto stream = gpu.make_stream();
    std::vector<decltype(mem)::tensor<std::uint8_t>> tensors;
    const auto make_until_refused = [&] {
      for (;;) {
        try {
          auto t = mem.make_tensor<std::uint8_t>({200'000}, role::parameter);
          fill(gpu, stream, t, tensors.size());
          tensors.push_back(std::move(t));
        } catch (const vtier::error& e) {
          return std::string{e.what()};
        }
        if (tensors.size() > 1000) return std::string{};
      }
    };
    const auto wrong = [&] {
      std::size_t sum = 0;
      for (std::size_t i = 0; i < tensors.size(); ++i) sum += differences(gpu, stream, tensors[i], i);
      return sum;
    };
    const std::string said = make_until_refused();
    for (const char* word : {"free", "file"}) {
      if (said.find(word) == std::string::npos) return std::fputs(said.c_str(), stderr), 11;
    }
    if (said.find(disk.path().string()) == std::string::npos) return std::fputs(said.c_str(), stderr), 12;
    if (wrong() != 0) return 13;
    if (!other.waits_for(100)) return 14;  // nor does the other lose what it has
    const std::size_t had = tensors.size();
    const std::size_t left_bytes = vtier::test::free_disk_bytes(disk.path());
    other.kill();
    if (!vtier::test::disk_has_free(disk.path(), left_bytes + others_bytes)) return 18;
    static_cast<void>(make_until_refused());
    if (tensors.size() < had + 5) return 15;
    if (wrong() != 0) return 16;
    return mem.broken_rules().empty() ? 0 : 17;
  });
  if (code == 77) {
    WARN("skipped: this machine allows no mounts of a test's own");
    return;
  }
  CHECK(code == 0);
}

TEST_CASE("a forked child ends without a trace, and a call there is an error (VO-C07)", "[cases]") {
  const engine_kind engine = GENERATE(engine_kind::automatic, engine_kind::threads);
  const vtier::test::scratch_directory directory;
  auto parent = std::make_unique<traffic>(directory.path(), 1, engine);
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
    auto& mem = parent->mem;
    auto& t = parent->tensors[0];
    attempt([&] { static_cast<void>(mem.make_tensor<std::uint8_t>({1}, role::parameter)); });
    attempt([&] { static_cast<void>(mem.try_make_tensor<std::uint8_t>({1}, role::parameter)); });
    attempt([&] { static_cast<void>(t.read(parent->stream)); });
    attempt([&] { static_cast<void>(t.write(vtier::on_host)); });
    attempt([&] { static_cast<void>(t.try_read(parent->stream)); });
    attempt([&] { static_cast<void>(t.try_read_write(vtier::on_host)); });
    attempt([&] { mem.prefetch(t); });
    attempt([&] { mem.evict(t); });
    attempt([&] { mem.flush(t); });
    attempt([&] { static_cast<void>(mem.step()); });
    attempt([&] { static_cast<void>(mem.count()); });
    attempt([&] { static_cast<void>(mem.report()); });
    attempt([&] { static_cast<void>(mem.broken_rules()); });
    attempt([&] { parent->gpu.synchronize(parent->stream); });  // no thread would ever do it
    return refused == 14 && !mem.poll() && mem.tier_count() == 3;
  });
  CAPTURE(calls.text);
  CHECK(calls.exit_status == 0);
  // A hierarchy of the child's own works beside.
  CHECK(in_child([&] {
          if (!vtier::test::threads_after_fork) return true;
          traffic own{directory.path(), 5, engine};
          return own.steps(20) == 0;
        }).exit_status == 0);
  CHECK(parent->steps(100) == 0);
  CHECK(parent->all_wrong() == 0);
  parent.reset();
  CHECK(directory.empty());
}

TEST_CASE("what is held at a fork is dropped by the child and kept by the parent (VO-C07)", "[cases]") {
  const vtier::test::scratch_directory directory;
  traffic parent{directory.path(), 3};
  auto lease = std::make_unique<decltype(parent.tensors[0].read_write(parent.stream))>(
      parent.tensors[0].read_write(parent.stream));
  using scope = decltype(parent.mem.step());
  std::unique_ptr<scope> step{new scope(parent.mem.step())};
  const auto end = in_child([&] {
    ::alarm(60);
    lease->end();
    lease.reset();
    step.reset();
    parent.tensors.clear();
  });
  CAPTURE(end.text, end.signal);
  CHECK(end.exit_status == 0);
  CHECK(parent.mem.count().leased.size() == 1);
  lease.reset();
  CHECK(parent.mem.count().step_count == 0);
  step.reset();
  CHECK(parent.mem.count().step_count == 1);
  CHECK(parent.all_wrong() == 0);
}

// Forks at points that nobody chooses: with locks held, transfers in flight, threads waiting.
TEST_CASE("children that are forked in the middle of traffic leave, and the parent's bytes stay right (VO-C07)",
          "[cases]") {
  const engine_kind engine = GENERATE(engine_kind::automatic, engine_kind::threads);
  const vtier::test::scratch_directory directory;
  auto parent = std::make_unique<traffic>(directory.path(), 4, engine);
  std::atomic<bool> stop{false};
  std::size_t wrong = 0;
  std::atomic<int> steps{0};
  std::thread busy{[&] {
    while (!stop) {
      wrong += parent->step();
      ++steps;
      steps.notify_all();
    }
  }};
  int failures = 0;
  std::vector<::pid_t> staying;
  for (int i = 0; i < 60; ++i) {
    const ::pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      switch (i % 4) {
        case 0: break;
        case 1:
          try {
            parent->mem.flush(parent->tensors[0]);
            ::_exit(1);
          } catch (const vtier::usage_error&) {
          }
          static_cast<void>(parent->mem.poll());
          break;
        case 2:
          parent.release();
          for (;;) ::pause();  // lives on: pages that the parent writes to are copied meanwhile
        case 3: parent.reset(); break;
      }
      ::_exit(0);
    }
    if (i % 4 == 2) {
      staying.push_back(child);
    } else if (!left_with(child, 0)) {
      ++failures;
    }
    for (int now = steps, until = now + 2; now < until; now = steps) steps.wait(now);
  }
  stop = true;
  busy.join();
  CHECK(failures == 0);
  CHECK(wrong == 0);
  CHECK(parent->all_wrong() == 0);
  CHECK(parent->mem.broken_rules().empty());
  for (const ::pid_t child : staying) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
}

// Otherwise what a drive writes into a buffer may arrive in the child's copy of it (open(2), O_DIRECT and fork).
TEST_CASE("no memory that drives write into is shared with a forked child (VO-C07)", "[cases]") {
  const vtier::test::scratch_directory directory;
  vtier::host::device gpu;
  const auto stream = gpu.make_stream();
  const std::size_t before = vtier::test::kept_from_children_bytes();
  const auto check = [&](auto& mem, std::size_t size_bytes) {
    CHECK(vtier::test::kept_from_children_bytes() >= before + size_bytes);
    auto t = mem.template make_tensor<std::uint8_t>({100'000}, role::parameter);
    fill(gpu, stream, t, 1);
    CHECK(in_child([] { return vtier::test::kept_from_children_bytes() == 0; }).exit_status == 0);
    CHECK(differences(gpu, stream, t, 1) == 0);
  };
  const vtier::mapped_file file{directory.path().string(), {.budget = 8_MiB}};
  {
    vtier::hierarchy mem{gpu, vtier::pinned{{.budget = 1_MiB}}, file};
    check(mem, 1_MiB);
  }
  for (const std::size_t staging : {64_KiB, 8_MiB}) {  // without a tier in host memory; from the heap, or mapped
    CAPTURE(staging);
    vtier::options limits;
    limits.staging_budget = staging;
    vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 1_MiB}}, file, limits};
    REQUIRE(mem.count().staging_bytes == staging);
    check(mem, staging);
  }
  CHECK(vtier::test::kept_from_children_bytes() == before);
}

TEST_CASE("no name that a user gives becomes part of a path (VO-B11)", "[cases]") {
  const vtier::test::scratch_directory directory;
  const vtier::host::device gpu;
  const auto s = gpu.make_stream();
  std::string with_null = "a";
  with_null += '\0';
  with_null += "b\n";
  for (const std::string& name :
       {std::string(300, 'n'), std::string{"../../up/and/away"}, std::string{"/"}, std::string{".."}, with_null}) {
    CAPTURE(name);
    vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 128_KiB, .name = name}},
                         vtier::pinned{{.budget = 256_KiB, .name = name}},
                         vtier::mapped_file{directory.path().string(), {.budget = 64_MiB, .name = name}}};
    std::vector<decltype(mem)::tensor<std::uint8_t>> many;
    for (std::uint64_t i = 0; i < 5000; ++i) {
      many.push_back(mem.make_tensor<std::uint8_t>({100}, role::optimizer));
      if (i % 5 == 0) fill(gpu, s, many.back(), i);
    }
    std::size_t wrong = 0;
    for (std::uint64_t i = 0; i < 5000; i += 25) wrong += differences(gpu, s, many[i], i);
    CHECK(wrong == 0);
    CHECK(directory.empty());
    CHECK(mem.count().links.size() > 1);
    try {
      static_cast<void>(mem.make_tensor<std::uint8_t>({100_MiB}, role::optimizer));
      FAIL("nothing was thrown");
    } catch (const vtier::out_of_memory& e) {
      const std::string text = e.what();
      CAPTURE(text);
      CHECK(e.tier() == name);
      CHECK(is_one_line(text));
      CHECK(text.find("100 MiB") != std::string::npos);
      CHECK(text.find("free") != std::string::npos);
    }
    const std::string report = mem.report().text();
    CHECK(report.find('\0') == std::string::npos);
    CHECK(report.find(std::string(100, 'n')) == std::string::npos);
  }
}
