// SPDX-License-Identifier: Apache-2.0
// What a kernel, a container or a file system refuses to file engines, seen through whole hierarchies (VO-B02, VO-B05,
// VO-B06, VO-B12).

#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <linux/magic.h>

#include <vtier/core/bytes.hpp>
#include <vtier/core/error.hpp>
#include <vtier/device/host.hpp>
#include <vtier/io/engine_options.hpp>
#include <vtier/memory/hbm.hpp>
#include <vtier/memory/mapped_file.hpp>
#include <vtier/memory/pinned.hpp>
#include <vtier/runtime/hierarchy.hpp>

#include "support/catch.hpp"
#include "support/death.hpp"
#include "support/denied_calls.hpp"
#include "support/host_hierarchy.hpp"
#include "support/scratch_directory.hpp"
#include "support/signal_storm.hpp"
#include "support/tensors.hpp"

namespace {

using namespace vtier::literals;
using vtier::role;
using vtier::io::engine_kind;
using vtier::test::add;
using vtier::test::differences;
using vtier::test::fill;
using hierarchy = vtier::hierarchy<vtier::host::device>;

constexpr int skipped = 77;

bool has(const std::string& text, std::string_view what) { return text.find(what) != std::string::npos; }

std::size_t count_of(const std::vector<std::string>& list, std::string_view what) {
  std::size_t count = 0;
  for (const std::string& text : list) count += has(text, what) ? 1U : 0U;
  return count;
}

/// A hierarchy over a directory, small enough that everything goes through its files.
struct swapper {
  swapper(const std::filesystem::path& directory, const vtier::mapped_file_options& files, const vtier::options& limits)
      : mem{vtier::hbm{gpu, {.budget = 2_MiB}}, vtier::pinned{{.budget = 4_MiB}},
            vtier::mapped_file{directory.string(), files}, limits} {}

  /// Fills tensors, changes each in some laps, and counts what is wrong.
  std::size_t swap(std::size_t tensor_count, std::size_t size, int laps) {
    auto stream = gpu.make_stream();
    std::vector<hierarchy::tensor<std::uint8_t>> tensors;
    for (std::size_t i = 0; i < tensor_count; ++i) {
      tensors.push_back(mem.make_tensor<std::uint8_t>({size}, role::parameter));
      fill(gpu, stream, tensors.back(), i);
    }
    for (int lap = 0; lap < laps; ++lap) {
      for (std::size_t i = 0; i < tensor_count; ++i) {
        mem.prefetch(tensors[(i + 1) % tensor_count]);
        add(gpu, stream, tensors[i], 3);
      }
    }
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < tensor_count; ++i) {
      wrong += differences(gpu, stream, tensors[i], i, static_cast<std::uint8_t>(3 * laps));
    }
    return wrong;
  }

  /// Whether all went well, said on stderr where not.
  bool right(std::size_t tensor_count, std::size_t size, int laps) {
    const std::size_t wrong = swap(tensor_count, size, laps);
    const auto counted = mem.count();
    for (const std::string& text : counted.errors) std::fprintf(stderr, "error: %s\n", text.c_str());
    for (const std::string& text : counted.notes) std::fprintf(stderr, "note: %s\n", text.c_str());
    return wrong == 0 && counted.errors.empty() && mem.broken_rules().empty();
  }

  vtier::host::device gpu;
  hierarchy mem;
};

vtier::mapped_file_options files_of(std::size_t budget, engine_kind engine) {
  vtier::mapped_file_options files;
  files.budget = budget;
  files.engine = engine;
  return files;
}

/// The errno of a hierarchy that cannot be made; 0 where it can.
int refusal_of(const std::filesystem::path& directory, engine_kind engine, std::string& text) {
  try {
    swapper s{directory, files_of(16_MiB, engine), {}};
  } catch (const vtier::io_error& e) {
    text = e.what();
    return e.code().value();
  }
  return 0;
}

/// Runs a part of a test in a child that may forbid itself what it likes; true where it cannot run here.
bool skips(const std::function<bool()>& part) {
  const auto end = vtier::test::in_child([&] {
    ::alarm(120);
    return part();
  });
  if (end.exit_status == skipped) {
    WARN("skipped: this machine allows no system call filters, or has no io_uring");
    return true;
  }
  CAPTURE(end.text, end.signal);
  CHECK(end.exit_status == 0);
  return false;
}

bool rings_work() {
#if VTIER_HAS_URING
  try {
    static_cast<void>(vtier::io::uring{});
    return true;
  } catch (const vtier::io_error&) {
    return false;
  }
#else
  return false;
#endif
}

}  // namespace

TEST_CASE("where O_DIRECT is refused, a hierarchy goes through the page cache and says so once (VO-B02)", "[cases]") {
  const vtier::test::scratch_directory directory;
  struct refusal {
    int open_error;
    int write_error;
    std::string_view said;
  };
  for (const auto& r : {refusal{EINVAL, 0, "direct I/O is refused (EINVAL at open)"},
                        refusal{EOPNOTSUPP, 0, "direct I/O is refused (EOPNOTSUPP at open)"},
                        refusal{0, EINVAL, "direct I/O is refused (EINVAL at the first transfer)"}}) {
    for (const auto engine : {engine_kind::automatic, engine_kind::threads}) {
      CAPTURE(std::string{r.said}, static_cast<int>(engine));
      const bool cannot = skips([&] {
        // 16 KiB: more than the block that is tried first, less than any piece of the traffic.
        const bool denied = r.open_error != 0 ? vtier::test::deny_direct_opens(r.open_error)
                                              : vtier::test::deny_small_writes(16'384, r.write_error);
        if (!denied) ::_exit(skipped);
        swapper s{directory.path(), files_of(16_MiB, engine), {}};
        if (!s.right(24, 300'000, 1)) return false;
        const auto notes = s.mem.count().notes;
        return count_of(notes, r.said) == 1 && count_of(notes, "direct I/O") == 1;
      });
      if (cannot) return;
      CHECK(directory.empty());
    }
  }
}

TEST_CASE("an open that fails for another reason than O_DIRECT fails the hierarchy (VO-B02)", "[cases]") {
  const vtier::test::scratch_directory directory;
  for (const int error : {EACCES, ENOENT, EIO}) {
    CAPTURE(error);
    const bool cannot = skips([&] {
      if (!vtier::test::deny_direct_opens(error)) ::_exit(skipped);
      std::string text;
      const int got = refusal_of(directory.path(), engine_kind::threads, text);
      std::fprintf(stderr, "%s\n", text.c_str());
      return got == error && has(text, directory.path().string());
    });
    if (cannot) return;
    CHECK(directory.empty());
  }
}

TEST_CASE("a hierarchy whose files are in shared memory (VO-B02)", "[cases]") {
  const std::filesystem::path shared = "/dev/shm";
  struct ::statfs about {};
  if (::statfs(shared.c_str(), &about) != 0 || about.f_type != TMPFS_MAGIC ||
      about.f_bavail * static_cast<std::uint64_t>(about.f_bsize) < 256_MiB) {
    WARN("skipped: no tmpfs with some room at /dev/shm");
    return;
  }
  for (const bool direct : {true, false}) {
    for (const auto engine : {engine_kind::automatic, engine_kind::threads}) {
      CAPTURE(direct, static_cast<int>(engine));
      auto files = files_of(32_MiB, engine);
      files.direct = direct;
      swapper s{shared, files, {}};
      CHECK(s.right(12, 1'000'001, 1));
      // Older kernels refuse O_DIRECT there, newer ones do not tell its alignment.
      CHECK(count_of(s.mem.count().notes, "direct I/O") == (direct ? 1U : 0U));
    }
  }
}

TEST_CASE("a storm of signals in all threads reaches no caller and no byte (VO-B05)", "[cases]") {
  const vtier::test::scratch_directory directory;
  for (const auto engine : {engine_kind::threads, engine_kind::automatic}) {
    for (const bool with_thread : {true, false}) {
      CAPTURE(static_cast<int>(engine), with_thread);
      const vtier::test::signal_storm_in_all_threads storm;
      const auto before = vtier::test::signal_storm::count();
      vtier::options limits;
      limits.progress_thread = with_thread;
      swapper s{directory.path(), files_of(64_MiB, engine), limits};
      CHECK(s.right(32, 1'000'000, 1));  // about 32 MiB through 6
      CHECK(vtier::test::signal_storm::count() > before);
    }
  }
  CHECK(directory.empty());
}

TEST_CASE("where rings are forbidden a hierarchy uses threads, and says why in one line (VO-B06)", "[cases]") {
  if (!rings_work()) {
    WARN("skipped: no io_uring here");
    return;
  }
#if VTIER_HAS_URING
  const vtier::test::scratch_directory directory;
  struct refusal {
    long call;
    int error;
    std::string_view name;
  };
  for (const auto& r : {refusal{SYS_io_uring_setup, EPERM, "(EPERM)"}, refusal{SYS_io_uring_setup, ENOSYS, "(ENOSYS)"},
                        refusal{SYS_io_uring_setup, ENOMEM, "(ENOMEM)"}, refusal{SYS_io_uring_enter, EPERM, "(EPERM)"},
                        refusal{SYS_io_uring_enter, ENOSYS, "(ENOSYS)"}}) {
    CAPTURE(r.call, std::string{r.name});
    const bool cannot = skips([&] {
      if (!vtier::test::deny_call(r.call, r.error)) ::_exit(skipped);
      std::string text;
      if (refusal_of(directory.path(), engine_kind::uring, text) != r.error || !has(text, r.name)) return false;
      swapper s{directory.path(), files_of(16_MiB, engine_kind::automatic), {}};
      if (!s.right(24, 300'000, 1)) return false;
      const auto notes = s.mem.count().notes;
      if (count_of(notes, "io_uring") != 1) return false;
      for (const std::string& note : notes) {
        if (!has(note, "io_uring")) continue;
        if (!has(note, "threads: ") || !has(note, r.name) || has(note, "\n")) return false;
        int setting = -1;
        std::ifstream{"/proc/sys/kernel/io_uring_disabled"} >> setting;
        const std::string shown = "kernel.io_uring_disabled is " + std::to_string(setting);
        if (r.error != ENOMEM && setting >= 0 && !has(note, shown)) return false;
      }
      return true;
    });
    if (cannot) return;
    CHECK(directory.empty());
  }
#endif
}

TEST_CASE("a ring that may register nothing works, and says so in one line (VO-B06)", "[cases]") {
  if (!rings_work()) {
    WARN("skipped: no io_uring here");
    return;
  }
#if VTIER_HAS_URING
  const vtier::test::scratch_directory directory;
  skips([&] {
    if (!vtier::test::deny_call(SYS_io_uring_register, EPERM)) ::_exit(skipped);
    swapper s{directory.path(), files_of(16_MiB, engine_kind::uring), {}};
    if (!s.right(24, 300'000, 1)) return false;
    return count_of(s.mem.count().notes, "unregistered buffers (EPERM)") == 1;
  });
#endif
}

TEST_CASE("two thousand tensors of 4 KiB through queues of 8 (VO-B12)", "[cases]") {
  const vtier::test::scratch_directory directory;
  for (const auto engine : {engine_kind::automatic, engine_kind::threads}) {
    CAPTURE(static_cast<int>(engine));
    auto files = files_of(64_MiB, engine);
    files.queue_depth_max = 8;
    swapper s{directory.path(), files, {}};
    CHECK(s.right(2'000, 4096, 0));  // the suites of engines and of the copier have 10,000
    std::uint64_t transfers = 0;
    for (const auto& link : s.mem.count().links) transfers += has(link.name, "file") ? link.transfer_count : 0;
    CHECK(transfers > 1'000);
  }
}
