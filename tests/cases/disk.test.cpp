// SPDX-License-Identifier: Apache-2.0
// Drives that are full, small or shared, through the front door (VO-B01, VO-B07, VO-A06, VO-B10).

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <vtier/core/random_source.hpp>
#include <vtier/device/host.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/runtime/hierarchy.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/denied_calls.hpp"
#include "support/host_hierarchy.hpp"
#include "support/scratch_directory.hpp"
#include "support/tensors.hpp"

namespace {

using namespace vtier::literals;
using vtier::role;
using vtier::test::differences;
using vtier::test::fill;

constexpr int skipped = 77;

// Runs a function in a child with a tmpfs of its own size on the directory; gives the child's exit code, or -signal.
int on_small_disk(const std::filesystem::path& directory, const char* options, const std::function<int()>& function) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto user = ::getuid();
    const auto group = ::getgid();
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ::_exit(skipped);
    std::ofstream{"/proc/self/setgroups"} << "deny";
    std::ofstream{"/proc/self/uid_map"} << "0 " << user << " 1";
    std::ofstream{"/proc/self/gid_map"} << "0 " << group << " 1";
    if (::mount("none", directory.c_str(), "tmpfs", 0, options) != 0) ::_exit(skipped);
    int code = 99;
    try {
      code = function();
    } catch (const vtier::error& e) {
      std::fprintf(stderr, "%s\n", e.what());
      code = 98;
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

TEST_CASE("a full disk is an error where the tensor is made, never a signal") {
  // VO-B01
  vtier::test::scratch_directory directory;
  const int code = on_small_disk(directory.path(), "size=10m", [&]() -> int {
    vtier::host::device gpu;
    vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 2_MiB}}, vtier::pinned{{.budget = 2_MiB}},
                         vtier::mapped_file{directory.path(), {.budget = 64_MiB}}};
    auto stream = gpu.make_stream();
    std::vector<decltype(mem)::tensor<std::uint8_t>> tensors;
    std::string message;
    for (int i = 0; i < 100 && message.empty(); ++i) {
      try {
        tensors.push_back(mem.make_tensor<std::uint8_t>({1_MiB}, role::parameter));
        fill(gpu, stream, tensors.back(), tensors.size());
      } catch (const vtier::out_of_memory& e) {
        message = e.what();
      }
    }
    if (tensors.size() < 9 || tensors.size() > 13) return 10;  // about what HBM, DRAM and disk hold together
    if (message.find(directory.path().string()) == std::string::npos) return 11;
    for (int lap = 0; lap < 3; ++lap) {
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (differences(gpu, stream, tensors[i], i + 1) != 0) return 12;
      }
    }
    tensors.pop_back();
    auto one_more = mem.make_tensor<std::uint8_t>({1_MiB}, role::parameter);
    fill(gpu, stream, one_more, 77);
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (differences(gpu, stream, tensors[i], i + 1) != 0) return 13;
    }
    if (differences(gpu, stream, one_more, 77) != 0) return 14;
    return mem.broken_rules().empty() ? 0 : 15;
  });
  if (code == skipped) {
    WARN("skipped: this machine allows no user namespaces with a tmpfs");
    return;
  }
  CHECK(code == 0);
}

TEST_CASE("a file tier that is full to the brim makes progress") {
  // Once, two tensors took turns for ever: each pushed the other's copy out of the file in order to be written there.
  vtier::test::scratch_directory directory;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    vtier::host::device gpu;
    vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 6_MiB}}, vtier::pinned{{.budget = 12_MiB}},
                         vtier::mapped_file{directory.path(), {.budget = 10_MiB}}};
    auto stream = gpu.make_stream();
    vtier::random_source random{seed};
    std::vector<decltype(mem)::tensor<std::uint8_t>> tensors;
    ::alarm(120);  // what never returns ends the program
    for (;;) {
      const std::size_t sizes[] = {200'000, 200'000, 800'000, 2'000'000};
      auto t = mem.try_make_tensor<std::uint8_t>({sizes[random.below(4)]}, role::parameter);
      if (!t) break;
      try {
        fill(gpu, stream, *t, tensors.size());
      } catch (const vtier::out_of_memory&) {
        break;
      }
      tensors.push_back(std::move(*t));
      for (int i = 0; i < 3; ++i) {
        const auto at = random.below(tensors.size());
        mem.prefetch(tensors[random.below(tensors.size())]);
        try {
          const std::size_t wrong = differences(gpu, stream, tensors[at], at);
          REQUIRE(wrong == 0);
        } catch (const vtier::out_of_memory&) {  // as below
        }
      }
    }
    // To the brim and in pieces: a lease may be refused for want of one piece that is large enough, but it returns,
    // and nothing is lost.
    int had = 0;
    for (int i = 0; i < 100; ++i) {
      const auto at = random.below(tensors.size());
      try {
        const std::size_t wrong = differences(gpu, stream, tensors[at], at);
        REQUIRE(wrong == 0);
        if (random.below(2) == 0) fill(gpu, stream, tensors[at], at);
        ++had;
      } catch (const vtier::out_of_memory& e) {
        REQUIRE(std::string{e.what()}.find("largest piece") != std::string::npos);
      }
    }
    REQUIRE(had > 20);
    ::alarm(0);
    REQUIRE(mem.broken_rules().empty());
  }
}

TEST_CASE("many tensors of an odd size never share bytes") {
  // VO-A06
  vtier::test::scratch_directory directory;
  vtier::host::device gpu;
  vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::pinned{{.budget = 1_MiB}},
                       vtier::mapped_file{directory.path(), {.budget = 32_MiB}}};
  auto stream = gpu.make_stream();
  vtier::random_source random{6};
  std::vector<std::pair<decltype(mem)::tensor<std::uint8_t>, std::uint64_t>> all;
  for (std::uint64_t round = 0; round < 4; ++round) {
    for (std::uint64_t i = 0; i < 1000; ++i) {
      all.emplace_back(mem.make_tensor<std::uint8_t>({i % 3 == 0 && round > 0 ? std::size_t{8192} : std::size_t{4097}},
                                                     role::parameter),
                       round * 10'000 + i);
      fill(gpu, stream, all.back().first, all.back().second);
    }
    for (auto& one : all) mem.flush(one.first);
    std::size_t wrong = 0;
    for (int i = 0; i < 1000; ++i) {
      auto& one = all[random.below(all.size())];
      wrong += differences(gpu, stream, one.first, one.second);
    }
    REQUIRE(wrong == 0);
    for (std::size_t i = 0; i < all.size(); i += 3) std::swap(all[i], all.back()), all.pop_back();
  }
  all.clear();
  CHECK(mem.broken_rules().empty());
  for (const auto& t : mem.count().tiers) CHECK(t.used_bytes == t.staging_bytes);
}

TEST_CASE("two hierarchies in one directory never see each other") {
  // VO-B07
  vtier::test::scratch_directory directory;
  vtier::host::device gpu;
  auto stream = gpu.make_stream();
  vtier::hierarchy a{vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::mapped_file{directory.path(), {.budget = 8_MiB}}};
  vtier::hierarchy b{vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::mapped_file{directory.path(), {.budget = 8_MiB}}};
  CHECK(directory.empty());  // the files have no names
  std::vector<decltype(a)::tensor<std::uint8_t>> in_a;
  std::vector<decltype(b)::tensor<std::uint8_t>> in_b;
  for (std::size_t i = 0; i < 8; ++i) {
    in_a.push_back(a.make_tensor<std::uint8_t>({500'000}, role::parameter));
    in_b.push_back(b.make_tensor<std::uint8_t>({400'003}, role::parameter));
    fill(gpu, stream, in_a.back(), i);
    fill(gpu, stream, in_b.back(), i + 100);
  }
  for (int lap = 0; lap < 5; ++lap) {
    for (std::size_t i = 0; i < 8; ++i) {
      REQUIRE(differences(gpu, stream, in_a[i], i) == 0);
      REQUIRE(differences(gpu, stream, in_b[i], i + 100) == 0);
    }
  }
}

TEST_CASE("several directories form one tier") {
  vtier::test::scratch_directory first;
  vtier::test::scratch_directory second;
  vtier::host::device gpu;
  auto stream = gpu.make_stream();
  vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 2_MiB}},
                       vtier::mapped_file{std::vector<std::string>{first.path(), second.path()},
                                          {.budget = 32_MiB, .stripe_bytes = 256_KiB}}};
  std::vector<decltype(mem)::tensor<std::uint8_t>> tensors;
  for (std::size_t i = 0; i < 10; ++i) {
    tensors.push_back(mem.make_tensor<std::uint8_t>({1'000'001}, role::parameter));
    fill(gpu, stream, tensors.back(), i);
  }
  for (std::size_t i = 0; i < 10; ++i) REQUIRE(differences(gpu, stream, tensors[i], i) == 0);
  for (std::size_t i = 0; i < 10; ++i) {  // the mapping of the stripes says the same
    mem.flush(tensors[i]);
    mem.evict(tensors[i]);
    const auto lease = tensors[i].read(vtier::on_host);
    std::size_t wrong = 0;
    for (std::size_t k = 0; k < lease.size(); ++k) wrong += lease.data()[k] != vtier::test::pattern(i, k) ? 1U : 0U;
    REQUIRE(wrong == 0);
  }
}

TEST_CASE("a directory that cannot be used is an error before anything is allocated") {
  // VO-B10
  vtier::test::scratch_directory directory;
  std::ofstream{directory.path() / "file"} << "x";
  std::filesystem::create_directory(directory.path() / "real");
  std::filesystem::create_symlink(directory.path() / "real", directory.path() / "link");
  vtier::host::device gpu;
  const auto code_of = [&](const std::filesystem::path& path) {
    try {
      vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::mapped_file{path, {.budget = 8_MiB}}};
    } catch (const vtier::io_error& e) {
      const std::string message = e.what();
      if (!path.empty() && path.string().size() < 1000) CHECK(message.find(path.string()) != std::string::npos);
      return e.code().value();
    }
    return 0;
  };
  CHECK(code_of(directory.path() / "missing") == ENOENT);
  CHECK(code_of(directory.path() / "file") == ENOTDIR);
  CHECK(code_of(directory.path() / "link") == ELOOP);
  CHECK(code_of(std::string(5000, 'x')) == ENAMETOOLONG);
  CHECK(code_of("") != 0);
  CHECK(code_of("/proc") != 0);
}

TEST_CASE("where files cannot be mapped, an allocation in files says so and takes nothing (VO-B09)") {
  vtier::test::scratch_directory directory;
  std::filesystem::create_directory(directory.path() / "a");
  std::filesystem::create_directory(directory.path() / "b");
  const auto end = vtier::test::in_child([&] {
    if (!vtier::test::deny_shared_mappings()) ::_exit(77);
    const std::string a = (directory.path() / "a").string();
    const std::string b = (directory.path() / "b").string();
    for (const auto& places : {std::vector<std::string>{a}, std::vector<std::string>{a, b}}) {
      const vtier::mapped_file files{places, {.budget = 8_MiB, .stripe_bytes = 64_KiB}};
      for (int attempt = 0; attempt < 3; ++attempt) {
        try {
          static_cast<void>(files.allocate(1_MiB, 64));
          ::_exit(3);
        } catch (const vtier::io_error& e) {
          const std::string text = e.what();
          if (e.code().value() != ENODEV || text.find(a) == std::string::npos) ::_exit(4);
        }
      }
      if (files.free_bytes() != 8_MiB) ::_exit(5);
      // A tier over both: the ring is a shared mapping too, and what is not to be had is said.
      vtier::host::device gpu;
      vtier::hierarchy mem{vtier::hbm{gpu, {.budget = 1_MiB}}, vtier::pinned{{.budget = 1_MiB}}, files};
      auto stream = gpu.make_stream();
      std::vector<decltype(mem)::tensor<std::uint8_t>> tensors;
      for (std::size_t i = 0; i < 12; ++i) {
        tensors.push_back(mem.make_tensor<std::uint8_t>({300'000}, role::parameter));
        fill(gpu, stream, tensors.back(), i);
      }
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        if (differences(gpu, stream, tensors[i], i) != 0) ::_exit(6);
        const auto lease = tensors[i].read(vtier::on_host);  // in pinned memory, which needs no mapping of a file
        for (std::size_t at = 0; at < lease.size(); ++at) {
          if (lease.data()[at] != vtier::test::pattern(i, at)) ::_exit(7);
        }
      }
      int said = 0;
      for (const auto& note : mem.count().notes) said += note.find("threads: io_uring") != std::string::npos ? 1 : 0;
      if (said != 1) ::_exit(8);
    }
    ::_exit(0);
  });
  if (end.exit_status == 77) {
    WARN("skipped: this machine allows no system call filters");
    return;
  }
  CAPTURE(end.text, end.signal);
  CHECK(end.exit_status == 0);
}

TEST_CASE("where files cannot be mapped, tiers work and a lease that needs a mapping says so (VO-B09)") {
  vtier::test::scratch_directory directory;
  const auto end = vtier::test::in_child([&] {
    if (!vtier::test::deny_shared_mappings()) ::_exit(77);
    vtier::host::device gpu;
    vtier::options limits;
    limits.progress_thread = false;
    // The ring of io_uring is a shared mapping too.
    vtier::hierarchy mem{
        vtier::hbm{gpu, {.budget = 1_MiB}},
        vtier::mapped_file{directory.path().string(), {.budget = 8_MiB, .engine = vtier::io::engine_kind::threads}},
        limits};
    auto stream = gpu.make_stream();
    std::vector<decltype(mem)::tensor<std::uint8_t>> tensors;
    for (std::size_t i = 0; i < 12; ++i) {
      tensors.push_back(mem.make_tensor<std::uint8_t>({300'000}, role::parameter));
      fill(gpu, stream, tensors.back(), i);
    }
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) wrong += differences(gpu, stream, tensors[i], i);
    if (wrong != 0) ::_exit(3);
    try {
      static_cast<void>(tensors[0].read(vtier::on_host));
      ::_exit(4);
    } catch (const vtier::io_error& e) {
      if (e.code().value() != ENODEV || std::string{e.what()}.find("cannot map") == std::string::npos) ::_exit(5);
    }
    try {
      static_cast<void>(tensors[1].read_write(vtier::on_host));
      ::_exit(7);
    } catch (const vtier::io_error&) {
    }
    try {
      static_cast<void>(tensors[2].write(vtier::on_host));
      ::_exit(8);
    } catch (const vtier::io_error&) {
    }
    wrong = 0;  // and nothing is lost
    for (std::size_t i = 0; i < tensors.size(); ++i) wrong += differences(gpu, stream, tensors[i], i);
    if (!mem.broken_rules().empty() || !mem.count().errors.empty()) ::_exit(9);
    ::_exit(wrong == 0 ? 0 : 6);
  });
  if (end.exit_status == 77) {
    WARN("skipped: this machine allows no system call filters");
    return;
  }
  CAPTURE(end.text, end.signal);
  CHECK(end.exit_status == 0);
}
