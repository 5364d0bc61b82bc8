// SPDX-License-Identifier: Apache-2.0
#pragma once

// A hierarchy that is always busy with its files, and a process that is nothing else: what is killed, forked, or put
// beside another one.

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <utility>
#include <vector>

#include <vtier/core/bytes.hpp>
#include <vtier/core/random_source.hpp>
#include <vtier/device/host.hpp>
#include <vtier/io/engine_options.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/residency/role.hpp>
#include <vtier/runtime/hierarchy.hpp>

#include "support/death.hpp"
#include "support/own_mounts.hpp"
#include "support/scratch_directory.hpp"
#include "support/tensors.hpp"

namespace vtier::test {

/// A hierarchy whose tensors are three times as large as its memory, so that there is always traffic with files. Sizes
/// and contents are different for each seed.
struct traffic {
  static constexpr std::size_t memory_bytes = std::size_t{512} << 10U;

  explicit traffic(const std::filesystem::path& directory, std::uint64_t s = 1,
                   io::engine_kind engine = io::engine_kind::automatic)
      : seed{s},
        mem{hbm{gpu, {.budget = memory_bytes}}, pinned{{.budget = memory_bytes, .name = "dram"}},
            mapped_file{directory.string(), {.budget = std::size_t{8} << 20U, .engine = engine}}},
        stream{gpu.make_stream()},
        random{s} {
    const std::size_t size = 90'000 + s % 20 * 1'001;
    for (std::size_t i = 0; i < 30; ++i) {
      tensors.push_back(mem.make_tensor<std::uint8_t>({size + i * 37}, role::parameter));
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
  /// Looks at every tensor once.
  std::size_t all_wrong() {
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < tensors.size(); ++i) wrong += differences(gpu, stream, tensors[i], content[i]);
    return wrong;
  }

  std::uint64_t seed;
  host::device gpu;
  hierarchy<host::device> mem;
  host::stream stream;
  random_source random;
  std::vector<hierarchy<host::device>::tensor<std::uint8_t>> tensors;
  std::vector<std::uint64_t> content;
};

/// A child that makes traffic and says so by a byte for each step, until it is killed.
struct worker {
  worker(const std::filesystem::path& directory, std::uint64_t seed,
         io::engine_kind engine = io::engine_kind::automatic) {
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe for a test");
    std::fflush(nullptr);
    child = ::fork();
    if (child < 0) throw std::runtime_error("no process for a test");
    if (child > 0) {
      ::close(ends[1]);
      return;
    }
    ::close(ends[0]);
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that ends early leaves nobody
    try {
      traffic t{directory, seed, engine};
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

/// A directory and, where the machine allows it, a disk of its own mounted there: then what is free can be counted to
/// the byte, because nobody else takes any.
class own_disk {
 public:
  /// Needs   a child process: the mounts are its own from here on
  explicit own_disk(std::filesystem::path directory, std::size_t size_bytes)
      : path_{std::move(directory)},
        exact_{enter_own_mounts() && mount_disk(path_, size_bytes)},
        free_before_{free_disk_bytes(path_)} {}

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  [[nodiscard]] bool exact() const noexcept { return exact_; }
  /// Whether no name is there, and what was free is free again.
  [[nodiscard]] bool is_clean() const {
    if (!std::filesystem::is_empty(path_)) return false;
    return !exact_ || disk_is_free_again(path_, free_before_);
  }

 private:
  std::filesystem::path path_;
  bool exact_;
  std::size_t free_before_;
};

/// Runs `act(own_disk&)`, which gives an exit status, in a child; 1000 + its number where a signal ended that.
template <class Act>
int on_own_disk(std::size_t size_bytes, Act&& act) {
  const scratch_directory directory;
  const auto end = in_child([&] {
    own_disk disk{directory.path(), size_bytes};
    const int code = act(disk);
    ::_exit(code);
  });
  if (!end.text.empty()) std::fputs(end.text.c_str(), stderr);
  return end.signal != 0 ? 1000 + end.signal : end.exit_status;
}

}  // namespace vtier::test
